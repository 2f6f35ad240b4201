import type { ConnectRouter, Transport } from "@connectrpc/connect";
import { createClient } from "@connectrpc/connect";
import { WorkspaceService } from "@sandgate/proto/workspace/v1/workspace";
import type { Dependencies } from "../base/dependencies.ts";
import type { Logger } from "../base/logging.ts";
import type { Metrics } from "../base/metrics.ts";
import type { ServiceName } from "../base/service-names.ts";
import { readSettings, type SettingDefinitions, type SettingValues } from "../base/settings.ts";
import type { EventBus } from "../events/bus.ts";
import { startRelay } from "../events/relay.ts";
import { type DatabaseTarget, openStore, type ServiceStore, type StoreAdapters } from "../storage/open-store.ts";
import { startReencryption } from "../storage/reencryption.ts";
import type { Keyring } from "../storage/sealing.ts";
import { startWorkspacePurges, type WorkspacePurge } from "../workspaces/workspace-purges.ts";
import type { Commands } from "./admin.commands.ts";

/** Everything a service is given by the process that holds it. */
export interface ServiceEnvironment {
  database: DatabaseTarget;
  bus: EventBus;
  /** The transport to another service; calls through it are signed as this service. */
  transport(service: ServiceName): Transport;
  keyring: Keyring;
  logger: Logger;
  metrics: Metrics;
}

/** What a service is opened with: its environment, its settings and its store. */
export interface ServiceContext<Settings, Store extends ServiceStore> extends ServiceEnvironment {
  service: ServiceName;
  settings: Settings;
  store: Store;
}

/** Work in the background that ends when asked to. */
export interface BackgroundTask {
  stop(): Promise<void>;
}

/** What a service consists of besides what every service has. */
export interface ServiceParts {
  /** Registers the handlers. */
  routes(router: ConnectRouter): void;
  /** Starts work in the background, once every service can be called. The tasks are stopped, all at once, by a drain. */
  start?(): Promise<readonly BackgroundTask[]>;
  /** Removes what the service holds of a deleted workspace; left out by a service that holds nothing of workspaces. */
  purge?: WorkspacePurge;
  /** The state of each thing that it depends on besides the bus and other services. */
  dependencies(): Promise<Dependencies>;
  /** What operators may have it do, on the machine of its process. */
  commands?: Commands;
  /** Ends waits and streams, before the tasks in the background are stopped. */
  endWaits?(): void;
  /** Stores what is only in memory, right before the store is closed. */
  flush?(): Promise<void>;
}

/** A service that has been opened. */
export interface RunningService {
  /** Registers the handlers. */
  routes(router: ConnectRouter): void;
  /** Starts work in the background; called once every service can be called. */
  start(): Promise<void>;
  /** The state of each thing that it depends on besides the bus and other services. */
  dependencies(): Promise<Dependencies>;
  /** What operators may have it do, on the machine of its process. */
  commands?: Commands;
  /** Ends waits and work in the background; the service still answers short calls. */
  drain(): Promise<void>;
  /** Publishes no more and closes the store. Nothing is called afterwards. */
  close(): Promise<void>;
}

/** A service before it is opened. */
export interface ServiceDefinition<Settings, Extra = unknown> {
  readonly name: ServiceName;
  /** For listing or checking settings without opening the service. */
  readonly settings: SettingDefinitions;
  /** Throws a SettingsError that names every bad setting. */
  readSettings(env: NodeJS.ProcessEnv): Settings;
  /** Opens the store and everything that needs it. Rejects, with nothing left open, when either fails. */
  open(environment: ServiceEnvironment, settings: Settings): Promise<RunningService & Extra>;
}

/**
 * Defines a service. What is alike in all of them happens here: its store is opened on the database of the process; its
 * relay runs from `start` to `close`, so that the last short calls' events are published too; its deleted workspaces are
 * purged; and a drain ends waits first, then everything in the background.
 */
export function defineService<
  Definitions extends SettingDefinitions,
  Store extends ServiceStore,
  Parts extends ServiceParts,
  Settings = SettingValues<Definitions>,
>(o: {
  name: ServiceName;
  settings: Definitions;
  /** Derives what the service works with from its settings. Throws a SettingsError for what can't be used. */
  parseSettings?(values: SettingValues<Definitions>): Settings;
  stores: StoreAdapters<Store>;
  open(context: ServiceContext<Settings, Store>): Promise<Parts> | Parts;
}): ServiceDefinition<Settings, Omit<Parts, keyof ServiceParts>> {
  const { name } = o;
  return {
    name,
    settings: o.settings,
    readSettings(env) {
      const values = readSettings(o.settings, env);
      // Without parseSettings, Settings is what the settings are defined as.
      return o.parseSettings ? o.parseSettings(values) : (values as Settings);
    },
    async open(environment, settings) {
      const { bus, keyring, logger, metrics, transport } = environment;
      const store = await openStore(environment, o.stores);
      const parts = await Promise.resolve(o.open({ ...environment, service: name, settings, store })).catch(
        async (error: unknown) => {
          await store.close();
          throw error;
        },
      );
      let relay: BackgroundTask | undefined;
      let reencryption: ReturnType<typeof startReencryption> | undefined;
      let background: readonly BackgroundTask[] = [];

      return {
        ...parts,
        async start() {
          relay = startRelay({ outbox: store.outbox, bus, logger, metrics });
          const workspaces = createClient(WorkspaceService, transport("workspace"));
          const purges = parts.purge && [
            await startWorkspacePurges({
              service: name,
              leases: store.leases,
              bus,
              workspaces,
              logger,
              ...parts.purge,
            }),
          ];
          reencryption = startReencryption({ service: name, sealed: store.sealed, keyring, metrics, logger });
          background = [reencryption, ...(purges ?? []), ...((await parts.start?.()) ?? [])];
        },
        async dependencies() {
          const keyring = reencryption?.state() ?? "ok";
          return { ...(await parts.dependencies()), ...(keyring !== "ok" && { keyring }) };
        },
        async drain() {
          parts.endWaits?.();
          await Promise.all(background.map((task) => task.stop()));
        },
        async close() {
          await parts.flush?.();
          await relay?.stop();
          await store.close();
        },
      };
    },
  };
}

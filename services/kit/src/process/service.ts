import type { ConnectRouter, Transport } from "@connectrpc/connect";
import { createClient } from "@connectrpc/connect";
import { WorkspaceService } from "@sandgate/proto/workspace/v1/workspace";
import type { Dependencies } from "../base/dependencies.ts";
import type { Logger } from "../base/logging.ts";
import type { Metrics } from "../base/metrics.ts";
import type { ServiceName } from "../base/service-names.ts";
import { readSettings, type SettingDefinitions, type SettingValues } from "../base/settings.ts";
import { endInTurn, endTogether } from "../base/shutdown.ts";
import type { EventBus } from "../events/bus.ts";
import { startRelay } from "../events/relay.ts";
import { type DatabaseTarget, openStore, type ServiceStore, type StoreAdapters } from "../storage/open-store.ts";
import { startReencryption } from "../storage/reencryption.ts";
import type { Keyring } from "../storage/sealing.ts";
import { createUnknownWorkspaces } from "../workspaces/unknown-workspaces.ts";
import { startWorkspacePurges, type WorkspacePurge } from "../workspaces/workspace-purges.ts";
import type { Commands } from "./admin.commands.ts";

/** Everything that its process gives a service. */
export interface ServiceEnvironment {
  database: DatabaseTarget;
  bus: EventBus;
  /** Returns the transport to another service, whose calls are signed as this service. */
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

/** Work in the background that can be stopped. */
export interface BackgroundTask {
  stop(): Promise<void>;
}

/** What a service adds to what every service has. */
export interface ServiceParts {
  /** Registers the handlers. */
  routes(router: ConnectRouter): void;
  /** Starts work in the background once every service can be called. A drain stops all these tasks at once. */
  start?(): Promise<readonly BackgroundTask[]>;
  /**
   * Removes what the service stores of a deleted workspace. A service that stores nothing of workspaces leaves it out.
   */
  purge?: WorkspacePurge;
  /** Returns the state of each dependency besides the bus and other services. */
  dependencies(): Promise<Dependencies>;
  /** The commands that operators can run on the machine of the process. */
  commands?: Commands;
  /** Ends waits and streams. Tasks in the background are stopped after that. */
  endWaits?(): void;
  /** Stores what is only in memory, just before the store is closed. */
  flush?(): Promise<void>;
}

/** A service that has been opened. */
export interface RunningService {
  /** Registers the handlers. */
  routes(router: ConnectRouter): void;
  /** Starts work in the background. It is called once every service can be called. */
  start(): Promise<void>;
  /** Returns the state of each dependency besides the bus and other services. */
  dependencies(): Promise<Dependencies>;
  /** The commands that operators can run on the machine of the process. */
  commands?: Commands;
  /** Ends waits and work in the background. The service still answers short calls. */
  drain(): Promise<void>;
  /** Stops publishing and closes the store. Nothing is called afterwards. */
  close(): Promise<void>;
}

/** A service before it is opened. */
export interface ServiceDefinition<Settings, Extra = unknown> {
  readonly name: ServiceName;
  /** The definitions of its settings, which can be listed or checked without opening the service. */
  readonly settings: SettingDefinitions;
  /** Throws a SettingsError that names every bad setting. */
  readSettings(env: NodeJS.ProcessEnv): Settings;
  /** Opens the store and everything that needs it. Rejects, with nothing left open, when either fails. */
  open(environment: ServiceEnvironment, settings: Settings): Promise<RunningService & Extra>;
}

/**
 * Defines a service. This function does what all services have in common. It opens the store on the database of the
 * process. It runs the relay from `start` to `close`, so that the events of the last short calls are published too. It
 * purges deleted workspaces and re-encrypts sealed values. A drain ends waits first, and then everything in the
 * background.
 */
export function defineService<
  Definitions extends SettingDefinitions,
  Store extends ServiceStore,
  Parts extends ServiceParts,
  Settings = SettingValues<Definitions>,
>(o: {
  name: ServiceName;
  settings: Definitions;
  /** Derives what the service works with from its settings. Throws a SettingsError for values that can't be used. */
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
      // Without parseSettings, the type Settings is that of the definitions.
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
      const { purge } = parts;
      const unknown =
        purge &&
        createUnknownWorkspaces({
          service: name,
          store: purge.store,
          workspaces: createClient(WorkspaceService, transport("workspace")),
          logger,
          metrics,
        });
      let relay: BackgroundTask | undefined;
      let reencryption: ReturnType<typeof startReencryption> | undefined;
      let background: readonly BackgroundTask[] = [];

      return {
        ...parts,
        async start() {
          relay = startRelay({ outbox: store.outbox, bus, logger, metrics });
          const { leases } = store;
          const purges = purge && (await startWorkspacePurges({ service: name, leases, bus, logger, ...purge }));
          reencryption = startReencryption({ service: name, sealed: store.sealed, leases, keyring, metrics, logger });
          const tasks: (BackgroundTask | undefined)[] = [reencryption, purges, unknown?.start()];
          background = [...tasks.filter((task) => task !== undefined), ...((await parts.start?.()) ?? [])];
        },
        async dependencies() {
          const keyring = reencryption?.state() ?? "ok";
          const workspaces = unknown?.state() ?? "ok";
          return {
            ...(await parts.dependencies()),
            ...(keyring !== "ok" && { keyring }),
            ...(workspaces !== "ok" && { workspaces }),
          };
        },
        commands: {
          ...parts.commands,
          ...(unknown && {
            "list-unknown-workspaces": unknown.list,
            "purge-workspaces": (options) => unknown.purge([...options]),
          }),
        },
        async drain() {
          parts.endWaits?.();
          await endTogether(background.map((task) => task.stop()));
        },
        async close() {
          await endInTurn(
            () => parts.flush?.(),
            () => relay?.stop(),
            () => store.close(),
          );
        },
      };
    },
  };
}

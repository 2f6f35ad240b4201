import { once } from "node:events";
import { existsSync } from "node:fs";
import { createServer } from "node:net";
import { openFacade, readFacadeSettings } from "@sandgate/facade";
import { identityService } from "@sandgate/identity";
import { imageRegistryService } from "@sandgate/image-registry";
import { type Dependencies, stateOf } from "@sandgate/kit/base/dependencies";
import { createLogger, type Logger } from "@sandgate/kit/base/logging";
import { createMetrics, type Metrics } from "@sandgate/kit/base/metrics";
import type { ServiceName } from "@sandgate/kit/base/service-names";
import { endInTurn, endTogether } from "@sandgate/kit/base/shutdown";
import type { EventBus } from "@sandgate/kit/events/bus";
import { startAdminServer } from "@sandgate/kit/process/admin";
import { mergeCommands } from "@sandgate/kit/process/admin.commands";
import { adminSocketName } from "@sandgate/kit/process/admin-client";
import type { RunningService, ServiceDefinition, ServiceEnvironment } from "@sandgate/kit/process/service";
import { createInMemoryNetwork } from "@sandgate/kit/rpc/clients";
import { openKeyring } from "@sandgate/kit/storage/sealing";
import { sandboxService } from "@sandgate/sandbox";
import { telemetryService } from "@sandgate/telemetry";
import { workspaceService } from "@sandgate/workspace";
import { type DataFolder, openDataFolder } from "./data-folder.ts";
import { openFirstPassword } from "./first-password.ts";
import { databaseOf, type LocalSettings } from "./settings.ts";

/** Metrics tell about tenants, so they are for this machine alone. */
const adminHost = "127.0.0.1";

/** The whole platform in this process: the facade, the five services, their bus and their files. */
export interface Platform {
  /** Where the public API listens: "http://127.0.0.1:8080". */
  url: string;
  /**
   * The operator's account, created at the first start with a random password, to be shown until `forgetPassword` is
   * called.
   */
  firstStart: { username: string; password: string } | undefined;
  forgetPassword(): void;
  /** What it depends on and can't use now, a line for each. */
  problems(): Promise<string[]>;
  /** What its operator should know, a sentence or two each. */
  warnings(): Promise<string[]>;
  /** Finishes running requests, ends waits, and closes everything. Sandboxes keep running. */
  stop(): Promise<void>;
}

/**
 * Opens the platform and listens. Throws an error whose message says why in one line. `onEnd` is called when the
 * connection to NATS has ended for good, which only a new process can mend.
 */
export async function openPlatform(
  settings: LocalSettings,
  env: NodeJS.ProcessEnv,
  onEnd?: () => void,
): Promise<Platform> {
  const folder = openDataFolder(settings.data);
  // Before anything is created, since a first start shows a password only once.
  await requireFreePort("SANDGATE_PORT", settings.host, settings.port);
  if (settings.adminPort !== 0) await requireFreePort("SANDGATE_ADMIN_PORT", adminHost, settings.adminPort);

  const firstPassword =
    settings.database === "sqlite:" && settings.adminPassword === undefined ? openFirstPassword(folder) : undefined;

  const openLogger = (service: string) => createLogger({ service, level: settings.logLevel });
  const processMetrics = createMetrics({ processMetrics: true });
  const registries: [Metrics, ...Metrics[]] = [processMetrics];
  const openMetrics = (): Metrics => {
    const metrics = createMetrics();
    registries.push(metrics);
    return metrics;
  };

  const [keyring, network, bus] = await Promise.all([
    openKeyring({
      file: settings.keysFile ?? folder.path("keys.json"),
      // A new key ring couldn't open anything in an existing database.
      create: settings.database !== "sqlite:" || !existsSync(folder.path("identity.sqlite")),
    }),
    createInMemoryNetwork(),
    openBus(settings.events, { folder, logger: openLogger("bus"), metrics: processMetrics, onEnd }),
  ]);

  const serviceEnv = firstPassword ? { ...env, SANDGATE_ADMIN_PASSWORD: firstPassword.password } : env;
  async function open<Settings, Extra>(
    definition: ServiceDefinition<Settings, Extra>,
  ): Promise<RunningService & Extra> {
    const { name } = definition;
    const logger = openLogger(name);
    const metrics = openMetrics();
    const environment: ServiceEnvironment = {
      database: databaseOf(settings, folder, name),
      bus,
      transport: (callee) => network.transport(name, callee),
      keyring,
      logger,
      metrics,
    };
    const service = await definition.open(environment, definition.readSettings(serviceEnv));
    network.serve(name, { routes: (router) => service.routes(router), logger, metrics });
    return service;
  }

  const [identity, workspace, imageRegistry, sandbox, telemetry] = await Promise.all([
    open(identityService),
    open(workspaceService),
    open(imageRegistryService),
    open(sandboxService),
    open(telemetryService),
  ]);
  const services: Record<ServiceName, RunningService> = {
    identity,
    workspace,
    "image-registry": imageRegistry,
    sandbox,
    telemetry,
  };
  const all = Object.values(services);

  /** The bus and its consumers, and each dependency of a service by both their names, "sandbox.runtime". */
  async function checkDependencies(): Promise<Dependencies> {
    const events = stateOf(bus.identity());
    const states = await Promise.all(
      Object.entries(services).map(async ([name, service]) =>
        Object.entries(await service.dependencies()).map(([dependency, state]) => [`${name}.${dependency}`, state]),
      ),
    );
    return { events: await events, consumers: bus.consumers(), ...Object.fromEntries(states.flat()) };
  }

  // Before the services start, so that it need not share the processor with the work that they begin in the background.
  const facade = await openFacade(
    {
      transport: (callee) => network.transport("facade", callee),
      bus,
      logger: openLogger("facade"),
      metrics: openMetrics(),
      dependencies: async () => withoutReasons(await checkDependencies()),
    },
    readFacadeSettings(env),
  );
  await Promise.all(all.map((service) => service.start()));
  let ready = true;
  const admin = await startAdminServer({
    host: adminHost,
    port: settings.adminPort === 0 ? undefined : settings.adminPort,
    socket: settings.adminSocket ?? folder.path(adminSocketName),
    registries,
    logger: openLogger("admin"),
    ready: () => ready,
    dependencies: checkDependencies,
    deadLetters: () => bus.deadLetters,
    commands: () => mergeCommands(services),
  });

  return {
    url: await facade.listen(),
    firstStart: firstPassword
      ? { username: settings.adminUsername, password: firstPassword.password }
      : identity.firstStart,
    forgetPassword: () => firstPassword?.shown(),
    async problems() {
      const states = Object.entries(await checkDependencies());
      return states.filter(([, state]) => state !== "ok").map(([name, state]) => `${name}: ${state}`);
    },
    async warnings() {
      const { runtime: url, ociRuntime, registration } = sandboxService.readSettings(env);
      if (url.startsWith("kubernetes:")) return [];
      const { readKernelWarnings } = await import("@sandgate/sandbox/docker-shared-kernel");
      // An engine that is away is one of the problems.
      return readKernelWarnings({ url, ociRuntime, isOpen: registration === "open" }).catch(() => []);
    },
    async stop() {
      ready = false;
      // Together: requests that the facade waits for end when the services end their waits.
      await endInTurn(
        () => endTogether([facade.close(), ...all.map((service) => service.drain())]),
        () => endTogether(all.map((service) => service.close())),
        () => endTogether([bus.close(), admin.close()]),
        () => folder.release(),
      );
    },
  };
}

/** What anybody may read of the states, on the public /readyz: whether something is healthy, but not why. */
function withoutReasons(states: Dependencies): Dependencies {
  return Object.fromEntries(
    Object.entries(states).map(([name, state]) => [name, state === "ok" ? "ok" : "unhealthy: see the admin port"]),
  );
}

/** The bus that the setting's scheme names, imported only when it is chosen. */
async function openBus(
  events: string,
  o: { folder: DataFolder; logger: Logger; metrics: Metrics; onEnd: (() => void) | undefined },
): Promise<EventBus> {
  const { folder, logger, metrics, onEnd } = o;
  if (events === "local:") {
    const { openLocalBus } = await import("@sandgate/kit/events/bus.local");
    return openLocalBus({ file: folder.path("events.sqlite"), logger, metrics });
  }
  const { openNatsBus } = await import("@sandgate/kit/events/bus.nats");
  return openNatsBus({ url: events, service: "local", logger, metrics, ...(onEnd && { onEnd }) });
}

/** Otherwise a port in use is noticed only after everything else has started. */
async function requireFreePort(setting: string, host: string, port: number): Promise<void> {
  const server = createServer();
  try {
    await once(server.listen({ host, port }), "listening");
  } catch (cause) {
    const code = cause instanceof Error && "code" in cause ? String(cause.code) : String(cause);
    const problem = code === "EADDRINUSE" ? "is in use; set another one" : `can't be listened on (${code})`;
    throw new Error(`${setting}: port ${port} on ${host} ${problem}`, { cause });
  }
  server.close();
  await once(server, "close");
}

import { setTimeout as delay } from "node:timers/promises";
import type { Transport } from "@connectrpc/connect";
import {
  Health,
  HealthCheckResponse_ServingStatus,
  type HealthListResponse,
} from "@sandgate/proto/grpc/health/v1/health";
import { backoffMs } from "../base/backoff.ts";
import { type Dependencies, stateOf } from "../base/dependencies.ts";
import { messageOf } from "../base/domain-error.ts";
import { createLogger, type Logger, logConsole } from "../base/logging.ts";
import { createMetrics, type Metrics } from "../base/metrics.ts";
import type { ServiceName } from "../base/service-names.ts";
import { readSettings, SettingsError, unknownSettings } from "../base/settings.ts";
import { endInTurn, endTogether } from "../base/shutdown.ts";
import type { EventBus } from "../events/bus.ts";
import { createCallingTransport, createRemoteTransport, createServedTransport } from "../rpc/clients.ts";
import { asService } from "../rpc/context.ts";
import { createClient } from "../rpc/create-client.ts";
import type { TokenSigner } from "../rpc/internal-auth.ts";
import { openTokenSigner, openTokenVerifier } from "../rpc/internal-keys.ts";
import { createRouterOptions } from "../rpc/rpc.ts";
import { openTls, type Tls } from "../rpc/tls.ts";
import { openKeyring } from "../storage/sealing.ts";
import type { Commands } from "./admin.commands.ts";
import { startAdminServer } from "./admin.ts";
import { startServiceHost, stopOnSignal } from "./host.ts";
import {
  addressesOf,
  addressSettings,
  checkTlsSettings,
  commonSettings,
  eventSettings,
  readEach,
  readGroups,
  serviceProcessSettings,
} from "./process-settings.ts";
import type { ServiceDefinition } from "./service.ts";

const databaseRetry = { firstMs: 250, lastMs: 5_000 };
/** An attempt that takes longer is logged while it is running. */
const slowAttemptMs = 3_000;
/** More than the check of one dependency takes, and less than /readyz waits for all checks. */
const healthTimeoutMs = 1_500;

/** What every process of the distributed form is given, whatever it runs. */
interface CommonResources {
  /** Returns the transport to a service in another process, whose calls are signed as this process. */
  transport(service: ServiceName): Transport;
  signer: TokenSigner;
  tls: Tls;
  logger: Logger;
  metrics: Metrics;
  /**
   * Returns the state of the bus and of its consumers here, if there is one, and of each service that this process
   * calls, with the dependencies of that service.
   */
  dependencies(): Promise<Dependencies>;
}

/** What a process that sends or reads events is given. */
export interface ProcessResources extends CommonResources {
  bus: EventBus;
}

export interface Program {
  /** Starts the work. The process isn't ready before that. */
  start(): Promise<void>;
  /** Returns the state of each dependency of its own. */
  dependencies(): Promise<Dependencies>;
  /** The commands that operators can run. */
  commands?: Commands | undefined;
  /** Accepts nothing more, finishes running work, ends waits and closes everything that it opened. */
  stop(): Promise<void>;
}

/**
 * Runs one process of the distributed form until SIGTERM. It reads its settings, serves /healthz, /readyz and /metrics,
 * waits for the event bus and runs `open`. A failure to start is logged in one line and ends the process with exit code
 * 1.
 */
export async function runProcess<Settings>(o: {
  name: string;
  /** The service that the process runs, if any. */
  self?: ServiceName;
  /**
   * Reads the program's own settings before anything is opened. Throws a SettingsError that names every bad setting.
   */
  readSettings(env: NodeJS.ProcessEnv): Settings;
  open(resources: ProcessResources, settings: Settings): Promise<Program>;
}): Promise<void> {
  await run({
    name: o.name,
    addresses: addressSettings(o.self),
    readSettings: (env) => readEach([() => readSettings(eventSettings, env), () => o.readSettings(env)]),
    async openBus([given], { logger, metrics, onEnd }) {
      // Programs that only read the settings don't load it.
      const { openNatsBus } = await import("../events/bus.nats.ts");
      const credentials = {
        ...(given.eventsCredentialsFile && { file: given.eventsCredentialsFile }),
        ...(given.eventsUser && { user: given.eventsUser }),
        ...(given.eventsPassword && { password: given.eventsPassword }),
      };
      return openNatsBus({ url: given.events, credentials, service: o.name, logger, metrics, onEnd });
    },
    open: (resources, [, settings]) => o.open(resources, settings),
  });
}

/** Runs one process as `runProcess` does, but without the event bus. It calls only `callees`. */
export async function runProcessWithoutEvents<Settings>(o: {
  name: string;
  callees: readonly ServiceName[];
  readSettings(env: NodeJS.ProcessEnv): Settings;
  open(resources: CommonResources, settings: Settings): Promise<Program>;
}): Promise<void> {
  await run({ ...o, addresses: addressesOf(o.callees), openBus: async () => undefined });
}

async function run<Settings, Bus extends EventBus | undefined>(o: {
  name: string;
  addresses: ReturnType<typeof addressesOf>;
  readSettings(env: NodeJS.ProcessEnv): Settings;
  openBus(settings: Settings, o: { logger: Logger; metrics: Metrics; onEnd: () => void }): Promise<Bus>;
  open(resources: CommonResources & { bus: Bus }, settings: Settings): Promise<Program>;
}): Promise<void> {
  const fail = (error: unknown): never => {
    // This is logged at every level, since it is the only trace of the failure.
    const logger = createLogger({ service: o.name, level: "fatal" });
    logger.fatal(error instanceof SettingsError ? {} : { err: error }, `can't start: ${messageOf(error)}`);
    process.exit(1);
  };
  const { env } = process;
  try {
    const [{ common, addresses }, settings] = readEach([
      () => readGroups({ common: commonSettings, addresses: o.addresses }, env),
      () => o.readSettings(env),
    ]);
    checkTlsSettings(common);
    const logger = createLogger({ service: o.name, level: common.logLevel });
    logConsole(logger);
    const unknown = unknownSettings(env);
    if (unknown.length > 0) logger.warn({ settings: unknown }, "these are no settings of Sandgate, and are ignored");
    const metrics = createMetrics({ processMetrics: true });
    // This includes unhandled rejections. The state of the process is unknown then.
    process.on("uncaughtException", (error) => {
      logger.fatal({ err: error }, "an unexpected error ends this process");
      process.exit(1);
    });
    const signer = await openTokenSigner({ caller: o.name, file: common.internalKeyFile, logger });
    const { tlsCertFile: certFile, tlsKeyFile: keyFile, tlsCaFile: caFile } = common;
    const tls = await openTls({ certFile, keyFile, caFile, logger });

    let state: "starting" | "ready" | "stopping" = "starting";
    let bus: Bus | undefined;
    let hasOpened = false;
    let program: Program | undefined;
    const { transport, checkServices } = createServiceTransports(o.name, addresses, { signer, tls });
    const dependencies = async () => {
      const [events, services] = await Promise.all([
        bus ? stateOf(bus.identity()) : hasOpened ? undefined : "not connected yet",
        checkServices(),
      ]);
      return { ...(events && { events }), ...(bus && { consumers: bus.consumers() }), ...services };
    };
    const admin = await startAdminServer({
      host: common.adminHost,
      port: common.adminPort,
      socket: common.adminSocket,
      registries: [metrics],
      logger,
      ready: () => state === "ready",
      // In parallel, since one after the other they could take longer than /readyz waits.
      async dependencies() {
        const [outside, own] = await Promise.all([dependencies(), program?.dependencies()]);
        return { ...outside, ...own };
      },
      deadLetters: () => bus?.deadLetters,
      commands: () => program && (program.commands ?? {}),
    });
    const endAfterFailure = stopOnSignal(async () => {
      state = "stopping";
      logger.info("stopping: finishing running calls");
      try {
        await endInTurn(
          () => program?.stop(),
          () => bus?.close(),
          () => admin.close(),
        );
        logger.info("stopped");
      } catch (error) {
        logger.error({ err: error }, "did not stop cleanly");
        throw error;
      }
    });

    try {
      bus = await o.openBus(settings, { logger, metrics, onEnd: endAfterFailure });
      hasOpened = true;
      program = await o.open({ bus, transport, signer, tls, logger, metrics, dependencies }, settings);
      await program.start();
    } catch (error) {
      // A failure caused by the shutdown is no failure to start.
      if (isStopping()) return;
      throw error;
    }
    if (isStopping()) return;
    state = "ready";
    logger.info({ admin: admin.url }, "ready");

    function isStopping(): boolean {
      return state === "stopping";
    }
  } catch (error) {
    fail(error);
  }
}

/** Creates transports to the other services, each at its first use, and a check of their health. */
function createServiceTransports(
  name: string,
  addresses: Partial<Record<ServiceName, string>>,
  by: { signer: TokenSigner; tls: Tls },
) {
  const transports = new Map<ServiceName, Transport>();
  return {
    transport(service: ServiceName): Transport {
      const known = transports.get(service);
      if (known) return known;
      const url = addresses[service];
      if (!url) throw new Error(`${name} was given no address of ${service}.`);
      const transport = createRemoteTransport({ url, ...by, audience: service });
      transports.set(service, transport);
      return transport;
    },
    async checkServices(): Promise<Dependencies> {
      const states = [...transports].map(async ([service, transport]) => {
        const answer = createClient(Health, transport).list({}, asService({ timeoutMs: healthTimeoutMs }));
        return answer.then(
          ({ statuses }) => describeHealth(service, statuses),
          () => [[service, "can't be reached"]],
        );
      });
      return Object.fromEntries((await Promise.all(states)).flat());
    },
  };
}

/** Returns the state of a service, and of each of its dependencies under names such as "sandbox.runtime". */
function describeHealth(service: ServiceName, statuses: HealthListResponse["statuses"]): [string, string][] {
  const { SERVING } = HealthCheckResponse_ServingStatus;
  return Object.entries(statuses).flatMap(([name, { status }]): [string, string][] => {
    if (name === "") return [[service, status === SERVING ? "ok" : "is shutting down"]];
    // The full names of RPC services stand for the process itself.
    if (name.startsWith("sandgate.")) return [];
    return [[`${service}.${name}`, status === SERVING ? "ok" : `unhealthy: see /readyz of ${service}`]];
  });
}

/** Runs a service as a process of its own, on MongoDB and NATS, and serves its RPCs over HTTP/2. */
export async function runService<Settings>(definition: ServiceDefinition<Settings>): Promise<void> {
  const { name } = definition;
  await runProcess({
    name,
    self: name,
    readSettings: (env) =>
      readEach([() => readSettings(serviceProcessSettings(name), env), () => definition.readSettings(env)]),
    async open({ bus, transport, signer, tls, logger, metrics }, [hosting, settings]) {
      const { host, port, database: url, keysFile, internalJwksFile, tlsClients } = hosting;
      const keyring = await openKeyring({ file: keysFile, create: false });
      const verifier = await openTokenVerifier({ audience: name, file: internalJwksFile, logger });
      const router = { service: name, verifier, logger, metrics };
      // A service calls itself without the network.
      const itself = createServedTransport(name);
      const service = await waitForDatabase(logger, () =>
        definition.open(
          {
            database: { kind: "mongodb", url, name: `sandgate_${name.replace("-", "_")}` },
            bus,
            transport: (callee) =>
              callee === name
                ? createCallingTransport({ inner: itself.transport, signer, audience: name })
                : transport(callee),
            keyring,
            logger,
            metrics,
          },
          settings,
        ),
      );
      const routes = service.routes.bind(service);
      itself.serve(routes, createRouterOptions(router));
      const server = await startServiceHost({
        ...router,
        routes,
        host,
        port,
        tls,
        requireClientCertificates: tlsClients === "certified",
        dependencies: () => service.dependencies(),
      });
      logger.info({ address: server.url }, "serving calls");
      return {
        start: () => service.start(),
        dependencies: () => service.dependencies(),
        commands: service.commands,
        async stop() {
          // In parallel, because calls that wait for something end only when the service ends its waits.
          await endInTurn(
            () => endTogether([server.close(), service.drain()]),
            () => service.close(),
          );
        },
      };
    },
  });
}

/** Opens what needs the database. Retries for as long as the database can't be reached. */
async function waitForDatabase<T>(logger: Logger, open: () => Promise<T>): Promise<T> {
  for (let failures = 1; ; failures++) {
    // The driver looks for a server for 30 s before it fails.
    const slow = setTimeout(() => logger.warn("waiting for the database"), slowAttemptMs);
    try {
      return await open();
    } catch (error) {
      if (!isDatabaseAway(error)) throw error;
      logger.warn({ reason: messageOf(error) }, "waiting for the database");
    } finally {
      clearTimeout(slow);
    }
    await delay(backoffMs(failures, databaseRetry));
  }
}

/** MongoDB's driver distinguishes errors by name. Those about the URL are permanent. */
function isDatabaseAway(error: unknown): boolean {
  if (!(error instanceof Error)) return false;
  if (/^Mongo(Parse|InvalidArgument|API|MissingDependency)/.test(error.name)) return false;
  return error.name.startsWith("Mongo") || isDatabaseAway(error.cause);
}

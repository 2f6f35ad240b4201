import { setTimeout as delay } from "node:timers/promises";
import { createClient, type Transport } from "@connectrpc/connect";
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
import { readSettings, SettingsError } from "../base/settings.ts";
import type { EventBus } from "../events/bus.ts";
import { createCallingTransport, createRemoteTransport, createServedTransport } from "../rpc/clients.ts";
import { asService } from "../rpc/context.ts";
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
  readParts,
  serviceProcessSettings,
} from "./process-settings.ts";
import type { ServiceDefinition } from "./service.ts";

const databaseRetry = { firstMs: 250, lastMs: 5_000 };
/** An attempt that takes longer is logged while it goes on. */
const slowAttemptMs = 3_000;
/** More than the check of one dependency takes, less than what /readyz waits for all. */
const healthTimeoutMs = 1_500;

/** What every process of the distributed form has, whatever it runs. */
interface CommonParts {
  /** The transport to a service in another process; its calls are signed as this process. */
  transport(service: ServiceName): Transport;
  signer: TokenSigner;
  tls: Tls;
  logger: Logger;
  metrics: Metrics;
  /** The state of the bus, if it has one, and of each service that this process calls with what that depends on. */
  dependencies(): Promise<Dependencies>;
}

/** What a process has that takes part in events. */
export interface ProcessParts extends CommonParts {
  bus: EventBus;
}

export interface Program {
  /** Starts its work. The process isn't ready before. */
  start(): Promise<void>;
  /** The state of each thing of its own that it depends on. */
  dependencies(): Promise<Dependencies>;
  /** What operators may have it do. */
  commands?: Commands | undefined;
  /** Accepts nothing more, finishes what is running, ends waits, and closes everything that it opened. */
  stop(): Promise<void>;
}

/**
 * Runs one process of the distributed form until SIGTERM: reads its settings, serves /healthz, /readyz and /metrics, waits
 * for the event bus and runs `open`. A failure to start is logged in one line, with exit code 1.
 */
export async function runProcess<Settings>(o: {
  name: string;
  /** The service that it is, if any. */
  self?: ServiceName;
  /** Reads its own settings, before anything is opened. Throws a SettingsError that names every bad one. */
  readSettings(env: NodeJS.ProcessEnv): Settings;
  open(parts: ProcessParts, settings: Settings): Promise<Program>;
}): Promise<void> {
  await run({
    name: o.name,
    addresses: addressSettings(o.self),
    readSettings: (env) => readEach([() => readSettings(eventSettings, env), () => o.readSettings(env)]),
    async openBus([given], { logger, metrics, onEnd }) {
      // Not loaded by what only reads the settings.
      const { openNatsBus } = await import("../events/bus.nats.ts");
      const credentials = {
        ...(given.eventsCredentialsFile && { file: given.eventsCredentialsFile }),
        ...(given.eventsUser && { user: given.eventsUser }),
        ...(given.eventsPassword && { password: given.eventsPassword }),
      };
      return openNatsBus({ url: given.events, credentials, service: o.name, logger, metrics, onEnd });
    },
    open: (parts, [, settings]) => o.open(parts, settings),
  });
}

/** Runs one process as `runProcess` does, but for the event bus, which it takes no part in; it calls only `callees`. */
export async function runProcessWithoutEvents<Settings>(o: {
  name: string;
  callees: readonly ServiceName[];
  readSettings(env: NodeJS.ProcessEnv): Settings;
  open(parts: CommonParts, settings: Settings): Promise<Program>;
}): Promise<void> {
  await run({ ...o, addresses: addressesOf(o.callees), openBus: async () => undefined });
}

async function run<Settings, Bus extends EventBus | undefined>(o: {
  name: string;
  addresses: ReturnType<typeof addressesOf>;
  readSettings(env: NodeJS.ProcessEnv): Settings;
  openBus(settings: Settings, o: { logger: Logger; metrics: Metrics; onEnd: () => void }): Promise<Bus>;
  open(parts: CommonParts & { bus: Bus }, settings: Settings): Promise<Program>;
}): Promise<void> {
  const fail = (error: unknown): never => {
    // Logged whatever the level: there is no other trace of it.
    const logger = createLogger({ service: o.name, level: "fatal" });
    logger.fatal(error instanceof SettingsError ? {} : { err: error }, `can't start: ${messageOf(error)}`);
    process.exit(1);
  };
  const { env } = process;
  try {
    const [{ common, addresses }, settings] = readEach([
      () => readParts({ common: commonSettings, addresses: o.addresses }, env),
      () => o.readSettings(env),
    ]);
    checkTlsSettings(common);
    const logger = createLogger({ service: o.name, level: common.logLevel });
    logConsole(logger);
    const metrics = createMetrics({ processMetrics: true });
    // Unhandled rejections too. The state of the process is unknown then.
    process.on("uncaughtException", (error) => {
      logger.fatal({ err: error }, "unexpected error, so this process ends");
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
      return { ...(events && { events }), ...services };
    };
    const admin = await startAdminServer({
      host: common.adminHost,
      port: common.adminPort,
      registries: [metrics],
      ready: () => state === "ready",
      // In parallel: one after the other they could take longer than /readyz waits.
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
        await program?.stop();
        await bus?.close();
        await admin.close();
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

/** Transports to the other services, each created at first use, and the health of those services. */
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

/** The state of a service, and of what it depends on as "sandbox.runtime". */
function describeHealth(service: ServiceName, statuses: HealthListResponse["statuses"]): [string, string][] {
  const { SERVING } = HealthCheckResponse_ServingStatus;
  return Object.entries(statuses).flatMap(([name, { status }]): [string, string][] => {
    if (name === "") return [[service, status === SERVING ? "ok" : "is shutting down"]];
    // The RPC services by full name are the process itself.
    if (name.startsWith("sandgate.")) return [];
    return [[`${service}.${name}`, status === SERVING ? "ok" : `unhealthy: see /readyz of ${service}`]];
  });
}

/** Runs a service as a process of its own: opens it on MongoDB and NATS and serves its RPCs over HTTP/2. */
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
          // In parallel: calls that wait for something end because the service ends its waits.
          await Promise.all([server.close(), service.drain()]);
          await service.close();
        },
      };
    },
  });
}

/** Opens what needs the database; retries for as long as it can't be reached. */
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

/** MongoDB's driver tells errors apart by name; those about the URL are permanent. */
function isDatabaseAway(error: unknown): boolean {
  if (!(error instanceof Error)) return false;
  if (/^Mongo(Parse|InvalidArgument|API|MissingDependency)/.test(error.name)) return false;
  return error.name.startsWith("Mongo") || isDatabaseAway(error.cause);
}

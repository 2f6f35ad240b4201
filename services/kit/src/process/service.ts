import type { ConnectRouter, Transport } from "@connectrpc/connect";
import type { EventBus } from "../events/bus.ts";
import type { Dependencies } from "../base/dependencies.ts";
import type { Logger } from "../base/logging.ts";
import type { Metrics } from "../base/metrics.ts";
import type { Keyring } from "../storage/sealing.ts";

/** The services, by their folder's name, which is also the audience of their internal tokens. */
export const serviceNames = ["identity", "workspace", "image-registry", "sandbox", "telemetry"] as const;
export type ServiceName = (typeof serviceNames)[number];

/** Where a service keeps its data: a file of its own, or a database of its own on a MongoDB replica set. */
export type DatabaseTarget = { kind: "sqlite"; file: string } | { kind: "mongodb"; url: string; name: string };

/** Everything a service is given by the process that holds it. */
export interface ServiceEnvironment {
  env: NodeJS.ProcessEnv;
  service: string;
  database: DatabaseTarget;
  bus: EventBus;
  /** The way to another service; calls through it are signed as this service. */
  transport(service: ServiceName): Transport;
  keyring: Keyring;
  logger: Logger;
  metrics: Metrics;
}

export interface RunningService {
  /** Registers the handlers. */
  routes(router: ConnectRouter): void;
  /** Begins background work; called once every service can be called. */
  start(): Promise<void>;
  /** The state of each thing that it depends on besides the bus and other services. */
  dependencies(): Promise<Dependencies>;
  /** Ends waits and loops; the service still answers short calls. */
  drain(): Promise<void>;
  /** Closes databases. Nothing is called afterwards. */
  close(): Promise<void>;
}

export type OpenService = (environment: ServiceEnvironment) => Promise<RunningService>;

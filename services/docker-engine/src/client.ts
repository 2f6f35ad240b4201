import { IncomingMessage } from "node:http";
import { untilAborted } from "@sandgate/kit/base/abort";
import { counter, type Metrics } from "@sandgate/kit/base/metrics";
import Docker, { type ImageInspectInfo, type NetworkInspectInfo } from "dockerode";
import { parseEngineAddress } from "./address.ts";

export type { Container, ContainerCreateOptions, ContainerInfo, ContainerInspectInfo, ContainerStats } from "dockerode";

/** A client of one engine. */
export type Engine = Docker;

/** The part of the engine's `info` that is used (Docker Engine API 1.41). */
export interface EngineInfo {
  Architecture: string;
  CgroupDriver: string;
  CgroupVersion?: string;
  CpuCfsQuota: boolean;
  DefaultRuntime?: string;
  DockerRootDir: string;
  Driver: string;
  DriverStatus?: readonly (readonly string[])[] | null;
  LiveRestoreEnabled: boolean;
  MemoryLimit: boolean;
  PidsLimit: boolean;
  Runtimes?: Record<string, unknown>;
  SecurityOptions?: readonly string[] | null;
  ServerVersion: string;
}

/** What may end a call before its answer. */
interface CallLimits {
  signal?: AbortSignal | undefined;
  /** 30 s unless given. */
  timeoutMs?: number | undefined;
}

/** How long the engine may take for one call that does not wait for a container. */
const callTimeoutMs = 30_000;

/**
 * A client for an address as `parseEngineAddress` takes it. DOCKER_HOST is not read, and nothing is connected yet. Its
 * calls are counted in `metrics`, when that is given.
 */
export function openEngine(address: string, metrics?: Metrics): Engine {
  const parsed = parseEngineAddress(address);
  if (!parsed) {
    throw new Error(
      `not the address of a container engine: ${address} (docker:///path, unix:///path, docker://host:port, tcp://host:port)`,
    );
  }
  const engine =
    "socketPath" in parsed ? new Docker({ ...parsed, host: undefined }) : new Docker({ ...parsed, protocol: "http" });
  if (metrics) countCalls(engine, metrics);
  return engine;
}

/** Every call of dockerode goes through `dial`. */
function countCalls({ modem }: Engine, metrics: Metrics): void {
  const calls = counter(metrics, {
    name: "sandgate_engine_calls_total",
    help: "Calls of the container engine",
    labelNames: ["call"],
  });
  const dial = modem.dial.bind(modem);
  modem.dial = (request, callback) => {
    calls.inc({ call: callNameOf(request.method ?? "GET", request.path) });
    dial(request, callback);
  };
}

/** What a call asks for, without the ids and names in it, such as `GET containers/json` or `DELETE containers/*`. */
function callNameOf(method: string, path: string): string {
  const [kind = "", ...rest] = path.split("?")[0]?.split("/").filter(Boolean) ?? [];
  const last = rest.at(-1);
  if (last === undefined) return `${method} ${kind}`;
  // The name between may have slashes, as images' have.
  if (rest.length > 1) return `${method} ${kind}/*/${last}`;
  const isOfAll = method === "POST" || last === "json";
  return `${method} ${kind}/${isOfAll ? last : "*"}`;
}

/**
 * Makes one call, within 30 s unless given another deadline. Throws a TimeoutError, or the reason of the caller's
 * signal.
 */
export async function callEngine<T>(
  call: (abortSignal: AbortSignal) => Promise<T>,
  limits: CallLimits = {},
): Promise<T> {
  limits.signal?.throwIfAborted();
  const timeout = AbortSignal.timeout(limits.timeoutMs ?? callTimeoutMs);
  return callUntil(call, limits.signal ? AbortSignal.any([limits.signal, timeout]) : timeout);
}

/** Makes a call whose answer is a stream. It must begin within 30 s; the signal ends it whenever it aborts. */
export async function openStream<T>(call: (abortSignal: AbortSignal) => Promise<T>, signal: AbortSignal): Promise<T> {
  signal.throwIfAborted();
  const late = new AbortController();
  const timer = setTimeout(() => late.abort(new Error("The engine did not answer in time.")), callTimeoutMs);
  try {
    return await callUntil(call, AbortSignal.any([signal, late.signal]));
  } finally {
    clearTimeout(timer);
  }
}

function callUntil<T>(call: (abortSignal: AbortSignal) => Promise<T>, limit: AbortSignal): Promise<T> {
  return untilAborted(call(limit), limit);
}

/** Rejects unless the engine answers. Throws as `callEngine` does. */
export async function ping(engine: Engine, limits?: CallLimits): Promise<void> {
  await read(engine, "/_ping", limits);
}

/** What the engine says of itself and its host. Throws as `callEngine` does. */
export function readInfo(engine: Engine, limits?: CallLimits): Promise<EngineInfo> {
  return read(engine, "/info", limits);
}

/** An image of the engine, by its id or name. Throws as `callEngine` does. */
export function inspectImage(engine: Engine, reference: string, limits?: CallLimits): Promise<ImageInspectInfo> {
  return read(engine, `/images/${reference}/json`, limits);
}

/** A network of the engine with what is on it, by its id or name. Throws as `callEngine` does. */
export function inspectNetwork(engine: Engine, name: string, limits?: CallLimits): Promise<NetworkInspectInfo> {
  return read(engine, `/networks/${name}`, limits);
}

/**
 * For what dockerode's own methods can't end: its types give `ping`, `info` and a network's `inspect` no signal, and an
 * image's `inspect` drops it.
 */
function read<T>(engine: Engine, path: string, limits: CallLimits | undefined): Promise<T> {
  return callEngine(
    async (abortSignal) => (await dial(engine, { method: "GET", path, statusCodes: { 200: true }, abortSignal })) as T,
    limits,
  );
}

/**
 * A container's log, both streams multiplexed. dockerode's own `logs` holds all of a log in memory unless it follows
 * it; what is not read from this stream stays with the engine.
 */
export function openLogStream(
  engine: Engine,
  containerId: string,
  query: Record<string, string>,
  signal: AbortSignal,
): Promise<IncomingMessage> {
  const options = { stdout: "1", stderr: "1", ...query };
  return openAnswer(engine, `/containers/${containerId}/logs?`, options, signal);
}

/** The files that a container has changed, as JSON, which dockerode's own `changes` holds in memory. */
export function openChanges(engine: Engine, containerId: string, signal: AbortSignal): Promise<IncomingMessage> {
  return openAnswer(engine, `/containers/${containerId}/changes`, {}, signal);
}

/** The engine's images, as JSON. dockerode's own `listImages` can't read a list longer than a string can be. */
export function openImageList(engine: Engine, signal: AbortSignal): Promise<IncomingMessage> {
  return openAnswer(engine, "/images/json", {}, signal);
}

function openAnswer(
  engine: Engine,
  path: string,
  options: Record<string, string>,
  signal: AbortSignal,
): Promise<IncomingMessage> {
  const statusCodes = { 200: true, 404: "no such container", 409: "container is being removed", 500: "server error" };
  return openStream(async (abortSignal) => {
    const answer = await dial(engine, { method: "GET", path, options, isStream: true, statusCodes, abortSignal });
    if (answer instanceof IncomingMessage) return answer;
    throw new Error("The engine did not answer with a stream.");
  }, signal);
}

function dial({ modem }: Engine, request: Parameters<Engine["modem"]["dial"]>[0]): Promise<unknown> {
  return new Promise((resolve, reject) => {
    modem.dial(request, (error, answer) => (error ? reject(error) : resolve(answer)));
  });
}

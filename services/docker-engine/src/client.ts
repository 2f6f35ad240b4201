import { IncomingMessage } from "node:http";
import { untilAborted } from "@sandgate/kit/base/abort";
import { counter, type Metrics } from "@sandgate/kit/base/metrics";
import Docker from "dockerode";
import { parseEngineAddress } from "./address.ts";

export type { Container, ContainerCreateOptions, ContainerInfo, ContainerInspectInfo, ContainerStats } from "dockerode";

/** A client of one engine. */
export type Engine = Docker;

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
  limits: { signal?: AbortSignal | undefined; timeoutMs?: number | undefined } = {},
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
  return untilAborted(call(limit), limit, (reason): never => {
    throw reason;
  });
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

function openAnswer(
  engine: Engine,
  path: string,
  options: Record<string, string>,
  signal: AbortSignal,
): Promise<IncomingMessage> {
  return openStream(
    (abortSignal) =>
      new Promise((resolve, reject) => {
        const request = {
          method: "GET",
          path,
          options,
          isStream: true,
          statusCodes: { 200: true, 404: "no such container", 409: "container is being removed", 500: "server error" },
          abortSignal,
        };
        engine.modem.dial(request, (error, answer) => {
          if (answer instanceof IncomingMessage) resolve(answer);
          else reject(error ?? new Error("The engine did not answer with a stream."));
        });
      }),
    signal,
  );
}

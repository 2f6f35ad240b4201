import { untilAborted } from "@sandgate/kit/base/abort";
import { DomainError, messageOf } from "@sandgate/kit/base/domain-error";
import Docker from "dockerode";

export type Engine = Docker;

/** How long the engine may take for one call that does not wait for a container. */
const callTimeoutMs = 30_000;

/**
 * A client for `docker:///path/to.sock` or `docker://host:port`, and the forms DOCKER_HOST has, `unix://` and `tcp://`.
 * The environment's DOCKER_HOST is not read: the address given is the one used. Nothing is connected yet.
 */
export function openEngine(address: string): Engine {
  const url = URL.parse(address);
  if (url && ["docker:", "unix:"].includes(url.protocol) && url.host === "" && url.pathname.length > 1) {
    return new Docker({ socketPath: decodeURIComponent(url.pathname), host: undefined });
  }
  if (url && ["docker:", "tcp:"].includes(url.protocol) && url.hostname !== "") {
    return new Docker({ protocol: "http", host: url.hostname, port: url.port || 2375 });
  }
  throw new Error(
    `not an engine's address: ${address} (docker:///path, unix:///path, docker://host:port, tcp://host:port)`,
  );
}

/** Runs one call with a deadline, and with the caller's signal when there is one, whose reason it then throws. */
export async function callEngine<T>(
  work: (abortSignal: AbortSignal) => Promise<T>,
  limits: { signal?: AbortSignal; timeoutMs?: number } = {},
): Promise<T> {
  limits.signal?.throwIfAborted();
  const timeout = AbortSignal.timeout(limits.timeoutMs ?? callTimeoutMs);
  const limit = limits.signal ? AbortSignal.any([limits.signal, timeout]) : timeout;
  return untilAborted(work(limit), limit, (reason): never => {
    throw reason;
  });
}

/** The HTTP status the engine refused a call with; undefined when there was no answer at all. */
export function statusOf(error: unknown): number | undefined {
  return error instanceof Error && "statusCode" in error && typeof error.statusCode === "number"
    ? error.statusCode
    : undefined;
}

/** The engine's own words, without what the client wraps around them. */
export function engineMessageOf(error: unknown): string {
  return messageOf(error)
    .replace(/^\(HTTP code \d+\) .*? - /s, "")
    .trim();
}

/** RUNTIME_UNAVAILABLE for what is no answer about a sandbox; the engine's words stay in the cause, for the log. */
export function unavailable(error: unknown): DomainError {
  if (error instanceof DomainError) return error;
  const message =
    statusOf(error) === undefined ? "The container engine can't be reached." : "The container engine failed.";
  return new DomainError("RUNTIME_UNAVAILABLE", message, { cause: error });
}

/** Resolves with undefined where the engine answers with one of these statuses. */
export async function unless<T>(statuses: readonly number[], call: Promise<T>): Promise<T | undefined> {
  try {
    return await call;
  } catch (error) {
    const status = statusOf(error);
    if (status !== undefined && statuses.includes(status)) return undefined;
    throw error;
  }
}

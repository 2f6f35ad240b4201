import { setTimeout as delay } from "node:timers/promises";
import { type Backoff, backoffMs } from "@sandgate/kit/base/backoff";
import { DomainError } from "@sandgate/kit/base/domain-error";
import { counter, type Metrics } from "@sandgate/kit/base/metrics";
import { readLines } from "@sandgate/kit/base/streams";
import type { Dispatcher } from "undici";
import type { WebSocket } from "ws";
import { openConnection } from "./connection.ts";
import { protobufType, readEvents, readObject } from "./protobuf.ts";
import { openWebSocket } from "./web-socket.ts";
import { createWriteLimit } from "./write-limit.ts";

/** How long one request may take, and a stream until it begins. */
const requestTimeoutMs = 10_000;
/** How long a request is retried that the API server refused for now, or that did not reach it. */
const retryForMs = 15_000;
const retry: Backoff = { firstMs: 100, lastMs: 3_000 };
/** Answers carry their time to the second, and take a while to arrive. */
const clockToleranceMs = 3_000;

/** A request that the API server has refused (its Status object). */
export class ApiError extends Error {
  readonly status: number;
  /** Such as `AlreadyExists`. */
  readonly reason: string;
  constructor(status: number, reason: string, message: string) {
    super(message);
    this.name = "ApiError";
    this.status = status;
    this.reason = reason;
  }
}

export interface ApiRequest {
  method: "GET" | "POST" | "PUT" | "PATCH" | "DELETE";
  path: string;
  query?: Readonly<Record<string, string>>;
  body?: unknown;
  /** Only what PATCH is sent as; a strategic merge unless given. */
  patchType?: "application/strategic-merge-patch+json" | "application/merge-patch+json";
  signal?: AbortSignal;
}

/** A client of one API server. */
export interface Api {
  /**
   * Makes one request. Objects are as they are in JSON, but pods have only what `protobuf.ts` reads. What the server
   * refuses for now (429, 500 and more) and what did not reach it is tried again for 15 s, so it may have been done
   * already when it fails. Throws an ApiError, the signal's reason, or whatever kept it from being sent.
   */
  call(request: ApiRequest): Promise<unknown>;
  /**
   * Resolves once the server has begun to watch, with its events, parsed. They end with the answer, or throw.
   * Nothing is tried again.
   */
  openStream(
    path: string,
    query: Readonly<Record<string, string>>,
    signal: AbortSignal,
  ): Promise<AsyncIterable<unknown>>;
  /**
   * Resolves with an answer that is no object, such as a log, once that begins, which takes as long as the server waits
   * for something to say. Nothing is tried again. Throws an ApiError, or the signal's reason.
   */
  openText(path: string, query: Readonly<Record<string, string>>, signal: AbortSignal): Promise<AsyncIterable<Buffer>>;
  /**
   * Resolves with an open WebSocket, which is paused until its reader listens. Nothing is tried again. Throws an
   * ApiError, the signal's reason, or whatever kept it from being opened.
   */
  openSocket(
    path: string,
    query: URLSearchParams,
    protocols: readonly string[],
    signal: AbortSignal,
  ): Promise<WebSocket>;
  /** How far the server's clock is ahead of ours, in milliseconds; 0 when its answers, in seconds, don't show it. */
  clockAheadMs(): number;
  close(): Promise<void>;
}

/**
 * A client for an address as SANDGATE_RUNTIME has it.
 *
 * @param o.writesPerSecond at most that many requests that change something, with a second's worth at once after a
 * pause
 * @param o.requestTimeoutMs how long one request may take, and a stream until it begins. Default 10 s
 */
export function openApi(
  address: string,
  o: { writesPerSecond: number; metrics?: Metrics | undefined; requestTimeoutMs?: number },
): Api {
  const { metrics } = o;
  const timeoutMs = o.requestTimeoutMs ?? requestTimeoutMs;
  const connection = openConnection(address);
  const takeTurn = createWriteLimit(o.writesPerSecond);
  const calls =
    metrics &&
    counter(metrics, {
      name: "sandgate_kubernetes_calls_total",
      help: "Requests to the Kubernetes API server, each attempt",
      labelNames: ["method", "resource", "status"],
    });
  let aheadMs = 0;

  function readClock(date: string): void {
    const offMs = Date.parse(date) - Date.now();
    aheadMs = Math.abs(offMs) > clockToleranceMs ? offMs : 0;
  }

  async function send(request: ApiRequest & { accept?: string }, signal: AbortSignal) {
    const url = new URL(connection.server + request.path);
    for (const [name, value] of Object.entries(request.query ?? {})) url.searchParams.set(name, value);
    const used = connection.credentials();
    const { headers, dispatcher } = await used;
    const patchType = request.patchType ?? "application/strategic-merge-patch+json";
    const type = request.method === "PATCH" ? patchType : "application/json";
    const hasBody = request.body !== undefined;
    const label = { method: request.method, resource: resourceOf(request.path) };
    try {
      const response = await dispatcher.request({
        origin: url.origin,
        path: url.pathname + url.search,
        method: request.method,
        headers: {
          ...headers,
          accept:
            request.accept ?? (label.resource === "pods" ? `${protobufType}, application/json` : "application/json"),
          "user-agent": "sandgate",
          ...(hasBody && { "content-type": type }),
        },
        ...(hasBody && { body: JSON.stringify(request.body) }),
        // The connection is kept after a DELETE with options too, which an API server reads.
        reset: false,
        signal,
      });
      calls?.inc({ ...label, status: response.statusCode });
      readClock(String(response.headers.date));
      if (response.statusCode === 401) connection.renew(used);
      return response;
    } catch (error) {
      calls?.inc({ ...label, status: "none" });
      throw error;
    }
  }

  async function attempt(
    request: ApiRequest,
  ): Promise<{ answer: unknown } | { refused: ApiError; retryInMs: number | undefined }> {
    const timeout = AbortSignal.timeout(timeoutMs);
    const response = await send(request, request.signal ? AbortSignal.any([request.signal, timeout]) : timeout);
    const bytes = Buffer.from(await response.body.arrayBuffer());
    if (response.statusCode < 400) return { answer: parse(response, bytes) };
    const refused = toApiError(response, bytes);
    if (refused.status !== 401 && refused.status !== 429 && refused.status < 500) throw refused;
    const seconds = Number(response.headers["retry-after"]);
    return { refused, retryInMs: seconds > 0 ? seconds * 1000 : undefined };
  }

  return {
    async call(request) {
      const deadline = performance.now() + retryForMs;
      let hasRenewed = false;
      for (let failures = 1; ; failures++) {
        request.signal?.throwIfAborted();
        if (request.method !== "GET") await takeTurn(request.signal);
        let failure: unknown;
        let retryInMs: number | undefined;
        try {
          const outcome = await attempt(request);
          if ("answer" in outcome) return outcome.answer;
          ({ refused: failure, retryInMs } = outcome);
        } catch (error) {
          if (request.signal?.aborted) throw request.signal.reason;
          if (error instanceof ApiError) throw error;
          failure = error;
        }
        // Once, with credentials that were read again.
        if (failure instanceof ApiError && failure.status === 401) {
          if (hasRenewed) throw failure;
          hasRenewed = true;
          continue;
        }
        const waitMs = retryInMs ?? backoffMs(failures, retry);
        if (performance.now() + waitMs > deadline) throw failure;
        await delay(waitMs, undefined, { ...(request.signal && { signal: request.signal }) });
      }
    },

    async openStream(path, query, signal) {
      const opening = new AbortController();
      const late = () => opening.abort(new Error(`no answer within ${timeoutMs / 1000} s`));
      const timer = setTimeout(late, timeoutMs);
      const either = AbortSignal.any([signal, opening.signal]);
      const response = await send({ method: "GET", path, query }, either).finally(() => clearTimeout(timer));
      if (response.statusCode >= 400) throw toApiError(response, Buffer.from(await response.body.arrayBuffer()));
      return isProtobuf(response) ? readEvents(response.body) : parseLines(response.body);
    },

    async openText(path, query, signal) {
      const response = await send({ method: "GET", path, query, accept: "*/*" }, signal);
      if (response.statusCode >= 400) throw toApiError(response, Buffer.from(await response.body.arrayBuffer()));
      return response.body;
    },

    async openSocket(path, query, protocols, signal) {
      const used = connection.credentials();
      const { tls } = await used;
      const url = new URL(`${connection.server}${path}?${query}`);
      const label = { method: "GET", resource: "pods/exec" };
      const outcome = await openWebSocket(url, protocols, { tls, signal, timeoutMs }).catch((error: unknown) => {
        calls?.inc({ ...label, status: "none" });
        throw error;
      });
      if ("socket" in outcome) {
        calls?.inc({ ...label, status: 101 });
        return outcome.socket;
      }
      const { statusCode, headers, body } = outcome.refused;
      calls?.inc({ ...label, status: statusCode });
      if (statusCode === 401) connection.renew(used);
      throw toApiError({ statusCode, headers }, body);
    },

    clockAheadMs: () => aheadMs,

    close: connection.close,
  };
}

async function* parseLines(body: AsyncIterable<Buffer>): AsyncGenerator<unknown> {
  for await (const line of readLines(body)) if (line !== "") yield JSON.parse(line);
}

type Answer = Pick<Dispatcher.ResponseData, "statusCode" | "headers">;

function isProtobuf({ headers }: Answer): boolean {
  return String(headers["content-type"]).startsWith(protobufType);
}

function parse(answer: Answer, bytes: Buffer): unknown {
  return isProtobuf(answer) ? readObject(bytes) : JSON.parse(bytes.toString());
}

function toApiError(answer: Answer, bytes: Buffer): ApiError {
  try {
    const { reason, message } = parse(answer, bytes) as { reason?: string; message?: string };
    return new ApiError(answer.statusCode, reason ?? "", message ?? bytes.toString());
  } catch {
    return new ApiError(answer.statusCode, "", bytes.toString().slice(0, 500));
  }
}

/** `pods`, `secrets`, …: what a path is about, without names. */
function resourceOf(path: string): string {
  const [, resource] = /\/namespaces\/[^/]+\/([a-z]+)/.exec(path) ?? [];
  return resource ?? path.split("/").filter(Boolean)[2] ?? "";
}

/** RUNTIME_UNAVAILABLE, unless it is a DomainError already. */
export function toRuntimeUnavailable(error: unknown): DomainError {
  if (error instanceof DomainError) return error;
  const message =
    error instanceof ApiError
      ? `The Kubernetes API server refused a request (${error.status} ${error.reason}).`
      : "The Kubernetes API server can't be reached.";
  return new DomainError("RUNTIME_UNAVAILABLE", message, { cause: error });
}

/** Resolves with undefined where the API server answers with one of these statuses. */
export async function ignoreStatus<T>(statuses: readonly number[], call: Promise<T>): Promise<T | undefined> {
  try {
    return await call;
  } catch (error) {
    if (error instanceof ApiError && statuses.includes(error.status)) return undefined;
    throw error;
  }
}

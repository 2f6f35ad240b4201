import { lookup } from "node:dns/promises";
import type { Http2Session } from "node:http2";
import { connect as connectSocket, type Socket } from "node:net";
import { Code, ConnectError, type Transport } from "@connectrpc/connect";
import { Http2SessionManager } from "@connectrpc/connect-node";
import { untilAborted } from "../base/abort.ts";
import { backoffMs } from "../base/backoff.ts";
import type { Tls } from "./tls.ts";

/** How often the addresses of replicas are resolved. */
const resolveEveryMs = 5_000;
const connectTimeoutMs = 2_000;
/** How long a replica that can't be reached isn't tried again. */
const retry = { firstMs: 250, lastMs: 2_000 };
/**
 * Pings detect a peer that vanished without closing the connection, well before the usual deadline of 10 s. An idle
 * connection is closed before the host closes it (72 s).
 */
const sessionOptions = { pingIntervalMs: 3_000, pingTimeoutMs: 4_000, idleConnectionTimeoutMs: 60_000 };

interface Replica {
  session: Http2SessionManager;
  transport: Transport;
  connecting: Promise<Replica> | undefined;
  failures: number;
  /** The time of performance.now() before which no connection is tried. */
  retryAtMs: number;
}

/**
 * Creates a transport that spreads calls over the replicas of a service. It has one connection to each address of the
 * hosts in `urls` and uses them in turn. Unreachable replicas are skipped and reconnected in the background. A call
 * that a replica provably never started is sent to the next one, unless a part of what the client streams was already
 * sent. Every other failure is left to the caller.
 */
export function createReplicatedTransport(o: {
  /** Each is http://host:port, or https://host:port with `tls`. */
  urls: readonly string[];
  tls?: Tls | undefined;
  /** Creates a transport over one connection. */
  open(url: string, session: Http2SessionManager): Transport;
  /** Returns the addresses of a host; asks the system's resolver unless set. */
  resolve?(host: string): Promise<readonly string[]>;
  /** How often addresses are resolved; 5 s unless set. */
  resolveEveryMs?: number;
}): Transport {
  const everyMs = o.resolveEveryMs ?? resolveEveryMs;
  const urls = o.urls.map((url) => new URL(url));
  const resolve = o.resolve ?? resolveHost;
  const replicas = new Map<string, Replica>();
  let resolving: Promise<void> | undefined;
  let resolvedAtMs = Number.NEGATIVE_INFINITY;
  // Clients that start together should start with different replicas.
  let turn = Math.floor(Math.random() * 1_000);

  /** Resolves the hosts again. A name that can't be resolved keeps its last addresses. */
  async function refresh(): Promise<void> {
    const found = await Promise.allSettled(urls.map(({ hostname }) => resolve(bare(hostname))));
    resolvedAtMs = performance.now();
    for (const [index, url] of urls.entries()) {
      const result = found[index];
      if (result?.status !== "fulfilled") continue;
      const keys = result.value.map((address) => `${url.origin} ${address}`);
      for (const known of replicas.keys()) {
        if (known.startsWith(`${url.origin} `) && !keys.includes(known)) replicas.delete(known);
      }
      for (const [at, key] of keys.entries()) {
        if (!replicas.has(key)) replicas.set(key, openReplica(url, result.value[at] ?? ""));
      }
    }
    const failure = found.find((result) => result.status === "rejected");
    if (replicas.size === 0) {
      throw new ConnectError("No address is known.", Code.Unavailable, undefined, undefined, failure?.reason);
    }
  }

  function openReplica(url: URL, address: string): Replica {
    const session = new SessionManager(url.origin, sessionOptions, {
      createConnection: () => openSocket(url, address, o.tls),
    });
    const transport = o.open(url.origin, session);
    return { session, transport, connecting: undefined, failures: 0, retryAtMs: 0 };
  }

  /** Chooses a replica that this call hasn't tried: a connected one, at once, if there is one. */
  function pick(tried: ReadonlySet<Replica>): Replica | Promise<Replica> {
    const nowMs = performance.now();
    if (nowMs - resolvedAtMs > everyMs && !resolving) {
      resolving = refresh().finally(() => {
        resolving = undefined;
      });
      // Whoever needs the result waits for it in `reach`.
      resolving.catch(() => {});
    }
    const untried = [...replicas.values()].filter((replica) => !tried.has(replica));
    const open = untried.filter(isOpen);
    const next = open[turn++ % open.length];
    if (!next) return reach(tried);
    for (const replica of untried) {
      if (!isOpen(replica) && replica.retryAtMs <= nowMs) connect(replica).catch(() => {});
    }
    return next;
  }

  /** Returns the first replica that accepts a connection. */
  async function reach(tried: ReadonlySet<Replica>): Promise<Replica> {
    if (replicas.size === 0) await resolving;
    // The next call resolves the names again, since they may have other addresses now.
    resolvedAtMs = Number.NEGATIVE_INFINITY;
    const untried = [...replicas.values()].filter((replica) => !tried.has(replica));
    return await Promise.any(untried.map(connect)).catch((cause: AggregateError) => {
      const reason = cause.errors[0] instanceof Error ? cause.errors[0].message : "each was tried";
      throw new ConnectError(`No replica can be reached: ${reason}`, Code.Unavailable, undefined, undefined, cause);
    });
  }

  async function call<T>(
    over: (transport: Transport, timeoutMs: number | undefined) => Promise<T>,
    signal: AbortSignal | undefined,
    timeoutMs: number | undefined,
    mayRepeat: () => boolean = () => true,
  ): Promise<T> {
    const tried = new Set<Replica>();
    const startedMs = performance.now();
    let leftMs = timeoutMs;
    for (;;) {
      const picked = pick(tried);
      const replica = picked instanceof Promise ? await within(picked, signal, leftMs) : picked;
      leftMs = timeLeft(timeoutMs, startedMs);
      try {
        return await over(replica.transport, leftMs);
      } catch (error) {
        tried.add(replica);
        const isFinal = signal?.aborted || !neverStarted(error) || tried.size >= replicas.size;
        if (isFinal || !mayRepeat()) throw error;
      }
    }
  }

  return {
    unary: (method, signal, timeoutMs, header, input, values) =>
      call(({ unary }, leftMs) => unary(method, signal, leftMs, header, input, values), signal, timeoutMs),
    async stream(method, signal, timeoutMs, header, input, values) {
      // The request of a server's stream can be read again.
      if (method.methodKind === "server_streaming") {
        return call(({ stream }, leftMs) => stream(method, signal, leftMs, header, input, values), signal, timeoutMs);
      }
      const once = shareUntilRead(input);
      return call(
        ({ stream }, leftMs) => stream(method, signal, leftMs, header, once.forAttempt(), values),
        signal,
        timeoutMs,
        () => !once.isRead(),
      ).catch((error: unknown) => {
        once.end(error);
        throw error;
      });
    },
  };
}

/**
 * What a client streams can be read only once, and a transport ends it when an attempt fails. This holds that back from
 * an attempt that has read nothing, so that the next one finds everything.
 */
function shareUntilRead<T>(messages: AsyncIterable<T>) {
  const iterator = messages[Symbol.asyncIterator]();
  const done = { done: true as const, value: undefined };
  let isRead = false;
  return {
    isRead: () => isRead,
    forAttempt(): AsyncIterable<T> {
      let reads = false;
      return {
        [Symbol.asyncIterator]: () => ({
          next() {
            reads = isRead = true;
            return iterator.next();
          },
          throw: async (reason) => (reads && (await iterator.throw?.(reason))) || done,
          return: async () => (reads && (await iterator.return?.())) || done,
        }),
      };
    },
    /** Tells the client that nobody will read it, if nobody has. */
    end(reason: unknown): void {
      if (!isRead) iterator.throw?.(reason).catch(() => {});
    },
  };
}

/**
 * Returns what is left of a call's time in whole milliseconds, as the protocols need it; never 0, which would mean no
 * deadline.
 */
export function timeLeft<T extends number | undefined>(timeoutMs: T, startedMs: number): number | T {
  return timeoutMs ? Math.max(1, Math.ceil(timeoutMs - (performance.now() - startedMs))) : timeoutMs;
}

/** Waits for the promise, but no longer than until the call's deadline (0 or undefined: none). */
async function within<T>(promise: Promise<T>, signal: AbortSignal | undefined, timeoutMs: number | undefined) {
  if (!timeoutMs && !signal) return promise;
  const time = new AbortController();
  const timer = timeoutMs ? setTimeout(() => time.abort(), timeoutMs) : undefined;
  const over = AbortSignal.any(signal ? [signal, time.signal] : [time.signal]);
  try {
    return await untilAborted(promise, over, (): never => {
      if (signal?.aborted) throw new ConnectError("The call was canceled.", Code.Canceled);
      throw new ConnectError("No replica could be reached in time.", Code.DeadlineExceeded);
    });
  } finally {
    clearTimeout(timer);
  }
}

async function resolveHost(host: string): Promise<string[]> {
  return (await lookup(host, { all: true })).map(({ address }) => address);
}

function isOpen({ session }: Replica): boolean {
  const state = session.state();
  return state === "open" || state === "idle" || state === "verifying";
}

/** Connects to the replica, once for all callers that wait. */
function connect(replica: Replica): Promise<Replica> {
  replica.connecting ??= replica.session.connect().then((state) => {
    replica.connecting = undefined;
    if (state !== "error") {
      replica.failures = 0;
      return replica;
    }
    replica.failures++;
    replica.retryAtMs = performance.now() + backoffMs(replica.failures, retry);
    throw replica.session.error();
  });
  return replica.connecting;
}

function openSocket(url: URL, address: string, tls: Tls | undefined): Socket {
  const isSecure = url.protocol === "https:";
  const port = Number(url.port || (isSecure ? 443 : 80));
  const host = bare(url.hostname);
  if (isSecure && !tls) throw new Error(`${url.origin} needs TLS, which this process was not given`);
  const socket = isSecure && tls ? tls.connect({ host, address, port }) : connectSocket({ host: address, port });
  socket.setNoDelay(true);
  const timer = setTimeout(() => {
    const timedOut = new Error(`connecting to ${address}:${port} took too long`);
    socket.destroy(Object.assign(timedOut, { code: "ETIMEDOUT", syscall: "connect" }));
  }, connectTimeoutMs);
  const isOver = () => clearTimeout(timer);
  socket.once(isSecure ? "secureConnect" : "connect", isOver).once("close", isOver);
  return socket;
}

/** Returns the host without the brackets around an IPv6 address in a URL. */
function bare(hostname: string): string {
  return hostname.replace(/^\[|\]$/g, "");
}

/**
 * Connect's session manager, except that a late error of an abandoned session doesn't end the process. Such an error
 * occurs when the peer sends GOAWAY on an idle connection just before the next call (connect-es issue 1768).
 */
class SessionManager extends Http2SessionManager {
  readonly #guarded = new WeakSet<Http2Session>();

  override async request(...of: Parameters<Http2SessionManager["request"]>) {
    const stream = await super.request(...of);
    const { session } = stream;
    if (session && !this.#guarded.has(session)) {
      this.#guarded.add(session);
      session.on("error", () => {});
    }
    return stream;
  }
}

/** Error codes of calls that were never sent. */
const unsent = new Set(["ERR_HTTP2_GOAWAY_SESSION", "ERR_HTTP2_INVALID_SESSION", "ERR_HTTP2_STREAM_CANCEL"]);

/**
 * True if no handler can have seen the call, because no connection was made or the peer refused the stream while it was
 * shutting down (RFC 9113, 8.7). Such a call may be retried, whatever it does.
 */
export function neverStarted(error: unknown): boolean {
  if (!(error instanceof Error)) return false;
  if (error instanceof ConnectError && error.rawMessage.includes("REFUSED_STREAM")) return true;
  if ("syscall" in error && (error.syscall === "connect" || error.syscall === "getaddrinfo")) return true;
  if ("code" in error && typeof error.code === "string" && unsent.has(error.code)) return true;
  if (error instanceof AggregateError) return error.errors.every(neverStarted);
  return neverStarted(error.cause);
}

import { setTimeout as delay } from "node:timers/promises";
import { type DescMethod, getOption } from "@bufbuild/protobuf";
import { MethodOptions_IdempotencyLevel } from "@bufbuild/protobuf/wkt";
import {
  Code,
  ConnectError,
  type ConnectRouter,
  type ConnectRouterOptions,
  type ContextValues,
  type Transport,
} from "@connectrpc/connect";
import { createConnectTransport, createGrpcTransport } from "@connectrpc/connect-node";
import { idempotency_key as honoursKey } from "@sandgate/proto/common/v1/idempotency";
import { ErrorInfoSchema } from "@sandgate/proto/google/rpc/error_details";
import { backoffMs } from "../base/backoff.ts";
import { newId } from "../base/ids.ts";
import type { Logger } from "../base/logging.ts";
import type { Metrics } from "../base/metrics.ts";
import { type ServiceName, serviceNames } from "../base/service-names.ts";
import { idempotencyKeyHeader, type Outgoing, outgoingKey, requestIdHeader, traceparentHeader } from "./context.ts";
import { fromConnectError } from "./errors.ts";
import { createInternalKeys, createTokenVerifier, type TokenSigner } from "./internal-auth.ts";
import { createLocalTransport } from "./local-transport.ts";
import { createReplicatedTransport, timeLeft, wasNeverBegun } from "./replicas.ts";
import { createRouterOptions, mapFailure } from "./rpc.ts";

/** The deadline of a call that names none. */
const defaultTimeoutMs = 10_000;
/** Attempts at a call at most, and the delays between them. */
const maxAttempts = 4;
const retry = { firstMs: 50, lastMs: 200 };
/** A page of telemetry rows is the largest answer. */
const readMaxBytes = 32 * 1024 * 1024;

/**
 * A transport that calls `audience` through `inner` as the signer's service: it signs every call, carries the request
 * id and trace of its options (asFacade, asService, onBehalfOf; nobody's call without) and, to a method that honours it,
 * the idempotency key, sets a deadline of 10 s unless given one (0: none), and throws DomainErrors. Within the deadline it
 * repeats, a few times, a call that no handler began, and one that was cut off if it carries a key or its contract says
 * that repeating does no harm.
 */
export function createCallingTransport(o: { inner: Transport; signer: TokenSigner; audience: ServiceName }): Transport {
  async function sign(given: GivenHeaders, call: Outgoing, key: string | undefined): Promise<Headers> {
    const header = new Headers(given);
    header.set("authorization", `Bearer ${await o.signer.mint(o.audience, call)}`);
    header.set(requestIdHeader, call.requestId);
    if (call.traceparent) header.set(traceparentHeader, call.traceparent);
    if (key) header.set(idempotencyKeyHeader, key);
    return header;
  }

  /** Makes the call until it need not or may not be made again. Signed anew each time: a token may be shorter-lived than a call. */
  async function repeat<T>(
    { method, signal, timeoutMs, given, values }: Attempted,
    attempt: (header: Headers, timeoutMs: number) => Promise<T>,
  ): Promise<T> {
    const call = values?.get(outgoingKey) ?? { passedOn: false, requestId: newId() };
    const key = call.idempotencyKey && getOption(method, honoursKey) ? call.idempotencyKey : undefined;
    const isHarmless = key !== undefined || method.idempotency !== MethodOptions_IdempotencyLevel.IDEMPOTENCY_UNKNOWN;
    const startedMs = performance.now();
    for (let failures = 1; ; failures++) {
      try {
        return await attempt(await sign(given, call, key), timeLeft(timeoutMs, startedMs));
      } catch (error) {
        const delayMs = backoffMs(failures, retry);
        const isLate = timeoutMs > 0 && performance.now() - startedMs + delayMs >= timeoutMs;
        if (isLate || failures === maxAttempts || signal?.aborted || !mayRepeat(method, isHarmless, error))
          throw fromConnectError(error);
        await delay(delayMs, undefined, signal && { signal }).catch(() => {
          throw fromConnectError(error);
        });
      }
    }
  }

  return {
    unary(method, signal, timeoutMs = defaultTimeoutMs, given, input, values) {
      return repeat({ method, signal, timeoutMs, given, values }, (header, leftMs) =>
        o.inner.unary(method, signal, leftMs, header, input, values),
      );
    },
    async stream(method, signal, timeoutMs = defaultTimeoutMs, given, input, values) {
      // What a client streams can be read once; the one request of a server's stream can be kept.
      const again = method.methodKind === "server_streaming" ? await keep(input) : input;
      const response = await repeat({ method, signal, timeoutMs, given, values }, (header, leftMs) =>
        o.inner.stream(method, signal, leftMs, header, again, values),
      );
      return { ...response, message: mapFailure(response.message, fromConnectError) };
    },
  };
}

type GivenHeaders = ConstructorParameters<typeof Headers>[0];

interface Attempted {
  method: DescMethod;
  signal: AbortSignal | undefined;
  timeoutMs: number;
  given: GivenHeaders;
  values: ContextValues | undefined;
}

async function keep<T>(messages: AsyncIterable<T>): Promise<AsyncIterable<T>> {
  const kept: T[] = [];
  for await (const message of messages) kept.push(message);
  return {
    async *[Symbol.asyncIterator]() {
      yield* kept;
    },
  };
}

function mayRepeat(method: DescMethod, isHarmless: boolean, error: unknown): boolean {
  if (method.methodKind === "client_streaming" || method.methodKind === "bidi_streaming") return false;
  const failure = error instanceof ConnectError ? error : undefined;
  const info = failure?.findDetails(ErrorInfoSchema)[0];
  // A failure with a reason is an answer, whatever connection of the handler's own may be its cause.
  if (info) return isHarmless && info.reason === "DRAINING";
  return wasNeverBegun(error) || (isHarmless && failure !== undefined && cutOffCodes.has(failure.code));
}

/** How broken connections show in Connect's client. */
const cutOffCodes = new Set<Code>([Code.Unavailable, Code.Aborted, Code.Canceled, Code.Internal, Code.Unknown]);

/**
 * The way to a service in other processes, over HTTP/2 without TLS. `url` is http://host:port, or several with commas
 * between; calls are spread over all their addresses. The Connect protocol unless set: it costs the least CPU here.
 */
export function createRemoteTransport(o: {
  url: string;
  signer: TokenSigner;
  audience: ServiceName;
  protocol?: "connect" | "grpc";
  resolve?(host: string): Promise<readonly string[]>;
  resolveEveryMs?: number;
}): Transport {
  const inner = createReplicatedTransport({
    urls: o.url.split(","),
    open(baseUrl, sessionManager) {
      const options = { baseUrl, sessionManager, readMaxBytes };
      return o.protocol === "grpc"
        ? createGrpcTransport(options)
        : createConnectTransport({ ...options, httpVersion: "2", useBinaryFormat: true });
    },
    ...(o.resolve && { resolve: o.resolve }),
    ...(o.resolveEveryMs && { resolveEveryMs: o.resolveEveryMs }),
  });
  return createCallingTransport({ inner, signer: o.signer, audience: o.audience });
}

/** A way to a service of this process, which may be served later than the way is given out. */
export function createServedTransport(service: string): {
  transport: Transport;
  serve(routes: (router: ConnectRouter) => void, options: ConnectRouterOptions): void;
} {
  let served: Transport | undefined;
  const find = (): Transport => {
    if (!served) throw new Error(`${service} is not served yet.`);
    return served;
  };
  return {
    transport: {
      unary: async (...call) => find().unary(...call),
      stream: async (...call) => find().stream(...call),
    },
    serve(routes, options) {
      served = createLocalTransport(routes, options, readMaxBytes);
    },
  };
}

/** Services that call each other within one process, by the same rules as over a network. */
export interface InMemoryNetwork {
  /** Makes a service callable. Its failures are counted in its own metrics. */
  serve(service: ServiceName, o: { routes(router: ConnectRouter): void; logger: Logger; metrics: Metrics }): void;
  /** The way from a caller ("facade" or a service) to a service, which need not be served yet. */
  transport(caller: string, service: ServiceName): Transport;
}

/** A network for one process. Keys for internal tokens are made fresh and stay in memory. */
export async function createInMemoryNetwork(): Promise<InMemoryNetwork> {
  const keys = await createInternalKeys(["facade", ...serviceNames]);
  const services = new Map(serviceNames.map((service) => [service, createServedTransport(service)]));
  const find = (service: ServiceName) => {
    const found = services.get(service);
    if (!found) throw new Error(`There is no service "${service}".`);
    return found;
  };

  return {
    serve(service, { routes, logger, metrics }) {
      const verifier = createTokenVerifier({ audience: service, jwks: keys.jwks });
      find(service).serve(routes, createRouterOptions({ service, verifier, logger, metrics }));
    },
    transport(caller, service) {
      return createCallingTransport({
        inner: find(service).transport,
        signer: keys.signer(caller),
        audience: service,
      });
    },
  };
}

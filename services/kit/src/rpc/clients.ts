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
import { createGrpcTransport } from "@connectrpc/connect-node";
import { idempotency_key as honoursKey } from "@sandgate/proto/common/v1/idempotency";
import { ErrorInfoSchema } from "@sandgate/proto/google/rpc/error_details";
import { backoffMs } from "../base/backoff.ts";
import { newId } from "../base/ids.ts";
import type { Logger } from "../base/logging.ts";
import type { Metrics } from "../base/metrics.ts";
import { callerNames, type ServiceName, serviceNames } from "../base/service-names.ts";
import { createConnectTransport } from "./connect-transport.ts";
import {
  clientAddressHeader,
  idempotencyKeyHeader,
  type Outgoing,
  outgoingKey,
  requestIdHeader,
  traceparentHeader,
} from "./context.ts";
import { fromConnectError } from "./errors.ts";
import { createInternalKeys, createTokenVerifier, type TokenSigner } from "./internal-auth.ts";
import { createLocalTransport } from "./local-transport.ts";
import { createReplicatedTransport, neverStarted, timeLeft } from "./replicas.ts";
import { createRouterOptions } from "./rpc.ts";
import type { Tls } from "./tls.ts";

/** The deadline of a call that doesn't set one. */
const defaultTimeoutMs = 10_000;
/** The most attempts at a call, and the delays between them. */
const maxAttempts = 4;
const retry = { firstMs: 50, lastMs: 200 };
/** The largest response is a page of telemetry rows. */
const readMaxBytes = 32 * 1024 * 1024;

/**
 * Creates a transport that calls `audience` through `inner` as the signer's service. It signs every call and passes on
 * what the call's options say (asFacade, asService, onBehalfOf): request id, trace, the client's address and, to
 * methods that honour it, the idempotency key. It sets a deadline of 10 s unless given one (0: none) and throws
 * DomainErrors.
 *
 * Within the deadline it retries a call a few times: one that no handler started, and one that was cut off if it has a
 * key or its contract says that a repetition does no harm. A server stream is retried only before its first message.
 */
export function createCallingTransport(o: { inner: Transport; signer: TokenSigner; audience: ServiceName }): Transport {
  async function sign(given: GivenHeaders, call: Outgoing, key: string | undefined): Promise<GivenHeaders> {
    const { requestId, traceparent, clientAddress } = call;
    const own: Record<string, string> = { authorization: await o.signer.mint(o.audience, call) };
    own[requestIdHeader] = requestId;
    if (traceparent) own[traceparentHeader] = traceparent;
    if (clientAddress) own[clientAddressHeader] = clientAddress;
    if (key) own[idempotencyKeyHeader] = key;
    if (given === undefined) return own;
    const header = new Headers(given);
    for (const [name, value] of Object.entries(own)) header.set(name, value);
    return header;
  }

  /**
   * Retries the call while that is allowed. Each attempt is signed again, since a token may expire before the call
   * does.
   */
  async function callWithRetry<T>(
    { method, signal, timeoutMs, given, values }: Attempted,
    attempt: (header: GivenHeaders, timeoutMs: number) => Promise<T>,
  ): Promise<T> {
    const call = values?.get(outgoingKey) ?? { passedOn: false, requestId: newId() };
    const key = call.idempotencyKey && getOption(method, honoursKey) ? call.idempotencyKey : undefined;
    const isHarmless = key !== undefined || isIdempotent(method);
    const startedMs = performance.now();
    for (let failures = 1; ; failures++) {
      try {
        return await attempt(await sign(given, call, key), timeLeft(timeoutMs, startedMs));
      } catch (error) {
        const delayMs = backoffMs(failures, retry);
        const isLate = timeoutMs > 0 && performance.now() - startedMs + delayMs >= timeoutMs;
        if (isLate || failures === maxAttempts || signal?.aborted || !mayRetry(method, isHarmless, error))
          throw fromConnectError(error);
        await delay(delayMs, undefined, signal && { signal }).catch(() => {
          throw fromConnectError(error);
        });
      }
    }
  }

  return {
    unary(method, signal, timeoutMs = defaultTimeoutMs, given, input, values) {
      return callWithRetry({ method, signal, timeoutMs, given, values }, (header, leftMs) =>
        o.inner.unary(method, signal, leftMs, header, input, values),
      );
    },
    async stream(method, signal, timeoutMs = defaultTimeoutMs, given, input, values) {
      // The single request of a server stream can be buffered; a client's stream can be read only once.
      const repeatable = method.methodKind === "server_streaming" ? await buffer(input) : input;
      const startedMs = performance.now();
      const open = () =>
        callWithRetry({ method, signal, timeoutMs: timeLeft(timeoutMs, startedMs), given, values }, (header, leftMs) =>
          o.inner.stream(method, signal, leftMs, header, repeatable, values),
        );
      const response = await open();
      const message = readOpened(response.message, async (error) =>
        signal?.aborted || !mayRetry(method, isIdempotent(method), error) ? undefined : (await open()).message,
      );
      return { ...response, message };
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

/**
 * Yields the messages of a stream. If it fails before the first message, yields those of the stream that `reopen`
 * returns, if any, because a handler's failure arrives within the stream. Throws DomainErrors.
 */
async function* readOpened<T>(
  messages: AsyncIterable<T>,
  reopen: (error: unknown) => Promise<AsyncIterable<T> | undefined>,
): AsyncGenerator<T> {
  let next = messages;
  for (let failures = 1; ; failures++) {
    let hasBegun = false;
    try {
      for await (const message of next) {
        hasBegun = true;
        yield message;
      }
      return;
    } catch (error) {
      if (hasBegun || failures === maxAttempts) throw fromConnectError(error);
      await delay(backoffMs(failures, retry));
      const reopened = await reopen(error);
      if (!reopened) throw fromConnectError(error);
      next = reopened;
    }
  }
}

async function buffer<T>(messages: AsyncIterable<T>): Promise<AsyncIterable<T>> {
  const buffered: T[] = [];
  for await (const message of messages) buffered.push(message);
  return {
    async *[Symbol.asyncIterator]() {
      yield* buffered;
    },
  };
}

/** True if the method's contract says that a repetition does no harm. */
function isIdempotent({ idempotency }: DescMethod): boolean {
  return idempotency !== MethodOptions_IdempotencyLevel.IDEMPOTENCY_UNKNOWN;
}

function mayRetry(method: DescMethod, isHarmless: boolean, error: unknown): boolean {
  if (method.methodKind === "client_streaming" || method.methodKind === "bidi_streaming") return false;
  const failure = error instanceof ConnectError ? error : undefined;
  const info = failure?.findDetails(ErrorInfoSchema)[0];
  // A failure with a reason is the handler's answer, even if the handler lost a connection of its own.
  if (info) return isHarmless && info.reason === "DRAINING";
  return neverStarted(error) || (isHarmless && failure !== undefined && cutOffCodes.has(failure.code));
}

/** The codes that Connect's client reports for broken connections. */
const cutOffCodes = new Set<Code>([Code.Unavailable, Code.Aborted, Code.Canceled, Code.Internal, Code.Unknown]);

/**
 * Creates a transport to a service in other processes, over HTTP/2. `url` is http://host:port, or https://host:port
 * with `tls`, or several of these separated by commas. Calls are spread over all addresses. The protocol is Connect
 * unless set, since it costs the least CPU here.
 */
export function createRemoteTransport(o: {
  url: string;
  signer: TokenSigner;
  audience: ServiceName;
  tls?: Tls | undefined;
  protocol?: "connect" | "grpc";
  resolve?(host: string): Promise<readonly string[]>;
  resolveEveryMs?: number;
}): Transport {
  const inner = createReplicatedTransport({
    urls: o.url.split(","),
    tls: o.tls,
    open(baseUrl, sessionManager) {
      const options = { baseUrl, sessionManager, readMaxBytes };
      return o.protocol === "grpc" ? createGrpcTransport(options) : createConnectTransport(options);
    },
    ...(o.resolve && { resolve: o.resolve }),
    ...(o.resolveEveryMs && { resolveEveryMs: o.resolveEveryMs }),
  });
  return createCallingTransport({ inner, signer: o.signer, audience: o.audience });
}

/** Creates a transport to a service of this process, even before the service is served. */
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
      unary: (...call) => find().unary(...call),
      stream: (...call) => find().stream(...call),
    },
    serve(routes, options) {
      served = createLocalTransport(routes, options, readMaxBytes);
    },
  };
}

/** Services of one process that call each other by the same rules as over a network. */
export interface InMemoryNetwork {
  /** Makes a service callable. Its own metrics count its failures. */
  serve(service: ServiceName, o: { routes(router: ConnectRouter): void; logger: Logger; metrics: Metrics }): void;
  /** Returns the transport from a caller to a service, which may be served later. */
  transport(caller: string, service: ServiceName): Transport;
}

/** Creates the network of one process. Its keys for internal tokens are generated at each start and stay in memory. */
export async function createInMemoryNetwork(): Promise<InMemoryNetwork> {
  const keys = await createInternalKeys(callerNames);
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

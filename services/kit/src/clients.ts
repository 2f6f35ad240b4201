import { ConnectError, type ConnectRouter, type ConnectRouterOptions, type Transport } from "@connectrpc/connect";
import { createConnectTransport, createGrpcTransport } from "@connectrpc/connect-node";
import { idempotencyKeyHeader, type Outgoing, outgoingKey, requestIdHeader, traceparentHeader } from "./context.ts";
import { fromConnectError } from "./errors.ts";
import { newId } from "./ids.ts";
import { createInternalKeys, createTokenVerifier, type TokenSigner } from "./internal-auth.ts";
import { createLocalTransport } from "./local-transport.ts";
import type { Logger } from "./logging.ts";
import type { Metrics } from "./metrics.ts";
import { createRouterOptions, mapFailure } from "./rpc.ts";
import { type ServiceName, serviceNames } from "./service.ts";

/** The deadline of a call that names none. */
const defaultTimeoutMs = 10_000;
/** A page of telemetry rows is the largest answer. */
const readMaxBytes = 32 * 1024 * 1024;

/**
 * A transport that calls `audience` through `inner` as the signer's service: it signs every call, carries the request
 * id, trace and idempotency key of its options (asFacade, asService, onBehalfOf; nobody's call without), sets a
 * deadline of 10 s unless given one (0: none), and throws DomainErrors.
 */
export function createCallingTransport(o: { inner: Transport; signer: TokenSigner; audience: ServiceName }): Transport {
  async function sign(
    given: ConstructorParameters<typeof Headers>[0],
    outgoing: Outgoing | undefined,
  ): Promise<Headers> {
    const call: Outgoing = outgoing ?? { passedOn: false, requestId: newId() };
    const header = new Headers(given);
    header.set("authorization", `Bearer ${await o.signer.mint(o.audience, call)}`);
    header.set(requestIdHeader, call.requestId);
    if (call.traceparent) header.set(traceparentHeader, call.traceparent);
    if (call.idempotencyKey) header.set(idempotencyKeyHeader, call.idempotencyKey);
    return header;
  }

  return {
    async unary(method, signal, timeoutMs = defaultTimeoutMs, given, input, values) {
      try {
        const header = await sign(given, values?.get(outgoingKey));
        const call = () => o.inner.unary(method, signal, timeoutMs, header, input, values);
        return await call().catch((error: unknown) => {
          if (wasRefused(error)) return call();
          throw error;
        });
      } catch (error) {
        throw fromConnectError(error);
      }
    },
    async stream(method, signal, timeoutMs = defaultTimeoutMs, given, input, values) {
      try {
        const header = await sign(given, values?.get(outgoingKey));
        const response = await o.inner.stream(method, signal, timeoutMs, header, input, values);
        return { ...response, message: mapFailure(response.message, fromConnectError) };
      } catch (error) {
        throw fromConnectError(error);
      }
    },
  };
}

/** A stream refused while its server says goodbye was never processed (RFC 9113, 8.7), so any call may be made again. */
function wasRefused(error: unknown): boolean {
  return error instanceof ConnectError && error.rawMessage.includes("NGHTTP2_REFUSED_STREAM");
}

/** The way to a service in another process, over HTTP/2 without TLS. The Connect protocol unless set: it costs the least CPU here. */
export function createRemoteTransport(o: {
  url: string;
  signer: TokenSigner;
  audience: ServiceName;
  protocol?: "connect" | "grpc";
}): Transport {
  // Pings find a connection whose peer vanished; without them a call would wait for its deadline.
  const options = { baseUrl: o.url, readMaxBytes, pingIntervalMs: 10_000, pingTimeoutMs: 5_000 };
  const inner =
    o.protocol === "grpc"
      ? createGrpcTransport(options)
      : createConnectTransport({ ...options, httpVersion: "2", useBinaryFormat: true });
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

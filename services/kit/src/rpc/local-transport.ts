import { create, type DescMethod, fromBinary, toBinary } from "@bufbuild/protobuf";
import {
  Code,
  ConnectError,
  type ConnectRouter,
  type ConnectRouterOptions,
  createHandlerContext,
  createMethodImplSpec,
  createRouterTransport,
  createServiceImplSpec,
  type HandlerContext,
  type MethodImplSpec,
  type Transport,
} from "@connectrpc/connect";
import { invokeUnaryImplementation } from "@connectrpc/connect/protocol";
import { untilAborted } from "../base/abort.ts";

type UnarySpec = MethodImplSpec & { kind: "unary" };

/** The reason with which a handler's signal is aborted once its call is over. Shared: creating an error with its stack costs more than a call. */
const ended = new ConnectError("the call has ended", Code.Canceled);

/**
 * A transport to handlers in this process. Streams take Connect's router transport. Unary calls skip its HTTP framing,
 * which costs several times what a call does otherwise, and keep the rest: the same gate and interceptors, limits,
 * deadline and signal, and messages that pass as bytes, so that caller and handler share no object.
 */
export function createLocalTransport(
  routes: (router: ConnectRouter) => void,
  options: ConnectRouterOptions,
  readMaxBytes: number,
): Transport {
  const specs = new Map<DescMethod, UnarySpec>();
  const router = createRouterTransport((inner) => routes(recordUnary(inner, specs)), {
    router: options,
    transport: { readMaxBytes },
  });

  return {
    stream: (...call) => router.stream(...call),
    async unary(method, signal, timeoutMs, header, input, values) {
      const spec = specs.get(method);
      if (!spec) return router.unary(method, signal, timeoutMs, header, input, values);
      const deadlineMs = timeoutMs !== undefined && timeoutMs > 0 ? timeoutMs : undefined;
      if (deadlineMs !== undefined && deadlineMs > (options.maxTimeoutMs ?? Number.POSITIVE_INFINITY)) {
        throw new ConnectError(`timeout ${deadlineMs}ms must be <= ${options.maxTimeoutMs}`, Code.InvalidArgument);
      }
      const request = toBinary(method.input, create(method.input, input));
      checkSize(request, options.readMaxBytes);
      const context = createHandlerContext({
        service: method.parent,
        method,
        protocolName: "local",
        requestMethod: "POST",
        url: `local:/${method.parent.typeName}/${method.name}`,
        ...(deadlineMs !== undefined && { timeoutMs: deadlineMs }),
        ...(signal && { requestSignal: signal }),
        ...(header && { requestHeader: header }),
      });
      try {
        // A handler that ignores its signal is left running.
        const response = await untilAborted(
          answer(spec, context, request, options),
          context.signal,
          (reason): never => {
            throw ConnectError.from(reason, Code.Canceled);
          },
        );
        checkSize(response, readMaxBytes);
        return {
          stream: false,
          service: method.parent,
          method,
          header: context.responseHeader,
          trailer: context.responseTrailer,
          message: fromBinary(method.output, response),
        };
      } finally {
        context.abort(ended);
      }
    },
  };
}

async function answer(
  spec: UnarySpec,
  context: HandlerContext,
  request: Uint8Array,
  options: ConnectRouterOptions,
): Promise<Uint8Array> {
  await options.requestGate?.(context);
  context.signal.throwIfAborted();
  const input = fromBinary(spec.method.input, request);
  const output = await invokeUnaryImplementation(spec, context, input, options.interceptors ?? []);
  return toBinary(spec.method.output, output);
}

function checkSize(bytes: Uint8Array, most = Number.POSITIVE_INFINITY): void {
  if (bytes.byteLength <= most) return;
  throw new ConnectError(`message size ${bytes.byteLength} is larger than ${most}`, Code.ResourceExhausted);
}

/** A router that also records the unary methods in `specs`, except those with options of their own. */
function recordUnary(inner: ConnectRouter, specs: Map<DescMethod, UnarySpec>): ConnectRouter {
  const record = (spec: MethodImplSpec) => {
    if (spec.kind === "unary") specs.set(spec.method, spec);
  };
  const router: ConnectRouter = {
    handlers: inner.handlers,
    service(service, implementation, options) {
      inner.service(service, implementation, options);
      if (!options) Object.values(createServiceImplSpec(service, implementation).methods).forEach(record);
      return router;
    },
    rpc(method, implementation, options) {
      inner.rpc(method, implementation, options);
      if (!options) record(createMethodImplSpec(method, implementation));
      return router;
    },
  };
  return router;
}

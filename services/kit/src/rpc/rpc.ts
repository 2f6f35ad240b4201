import {
  Code,
  ConnectError,
  type ConnectRouterOptions,
  type Interceptor,
  type StreamRequest,
  type UnaryRequest,
} from "@connectrpc/connect";
import type { Counter, Histogram } from "prom-client";
import { DomainError } from "../base/domain-error.ts";
import type { Logger } from "../base/logging.ts";
import { counter, histogram, type Metrics } from "../base/metrics.ts";
import { isDatabaseUnreachable } from "../storage/database-unreachable.ts";
import { authorize } from "./access.ts";
import { callerKey, headerOf, requestIdOf } from "./context.ts";
import { isExpected, toConnectError } from "./errors.ts";
import type { TokenVerifier } from "./internal-auth.ts";
import { validate } from "./validation.ts";

/** The longest deadline that a caller may ask for. A stream may have none. */
const maxTimeoutMs = 10 * 60_000;
/** The largest request is a batch of telemetry, with up to 1 MiB of lines. */
const readMaxBytes = 4 * 1024 * 1024;

export interface ServerOptions {
  service: string;
  verifier: TokenVerifier;
  logger: Logger;
  metrics: Metrics;
}

/**
 * Returns what every service's router does around its handlers, over a network or not. Before the body is read, it
 * checks the internal token and the method's access rule. Then come, from the outside in, errors, validation and the
 * handler.
 */
export function createRouterOptions(o: ServerOptions): ConnectRouterOptions {
  const measures = createMeasures(o.metrics);
  const report = createReport(o, measures);
  return {
    maxTimeoutMs,
    readMaxBytes,
    async requestGate(context) {
      try {
        const caller = await o.verifier.verify(headerOf(context, "authorization"));
        authorize(context.method, caller);
        context.values.set(callerKey, caller);
      } catch (error) {
        throw report(error, context.method, requestIdOf(context));
      }
    },
    interceptors: [createErrorInterceptor(o, measures, report), validationInterceptor],
  };
}

interface Measures {
  seconds: Histogram<"service" | "method">;
  failures: Counter<"service" | "method" | "reason">;
}

function createMeasures(metrics: Metrics): Measures {
  return {
    seconds: histogram(metrics, {
      name: "sandgate_rpc_seconds",
      help: "Time to answer a unary call, failed ones included.",
      labelNames: ["service", "method"],
      buckets: [0.001, 0.005, 0.025, 0.1, 0.5, 2.5, 10, 60],
    }),
    failures: counter(metrics, {
      name: "sandgate_rpc_failures_total",
      help: "Calls that failed, by reason.",
      labelNames: ["service", "method", "reason"],
    }),
  };
}

type Report = (error: unknown, method: UnaryRequest["method"] | StreamRequest["method"], requestId: string) => Error;

/**
 * Counts and logs a failure and turns it into what the caller may see. Faults are logged with their cause, including
 * those of dependencies.
 */
function createReport(o: ServerOptions, { failures }: Measures): Report {
  return (thrown, method, requestId) => {
    const error = isDatabaseUnreachable(thrown)
      ? new DomainError("UPSTREAM_ERROR", "The database could not be reached in time.", { cause: thrown })
      : thrown;
    const shown = toConnectError(error);
    const reason = error instanceof DomainError ? error.reason : isExpected(error) ? "ENDED" : "INTERNAL_ERROR";
    failures.inc({ service: o.service, method: method.name, reason });
    const entry = { method: `${method.parent.typeName}.${method.name}`, request_id: requestId, reason };
    if (reason === "CALLER_NOT_ALLOWED") o.logger.warn({ ...entry, err: error }, "call refused");
    else if (reason === "UPSTREAM_ERROR" && !(error instanceof DomainError && error.callersFault)) {
      o.logger.warn({ ...entry, err: error }, "a dependency failed");
    } else if (isExpected(error)) o.logger.debug({ ...entry, err: error }, "call failed");
    else o.logger.error({ ...entry, err: error }, "unexpected error");
    return shown;
  };
}

function createErrorInterceptor(
  { service, logger }: ServerOptions,
  { seconds }: Measures,
  report: Report,
): Interceptor {
  return (next) => async (request) => {
    const startedMs = performance.now();
    const fail = (thrown: unknown) => {
      // A handler that throws its signal's reason was canceled, which is no fault, whatever the reason is.
      const error = thrown === request.signal.reason ? ConnectError.from(thrown, Code.Canceled) : thrown;
      return report(
        error,
        request.method,
        requestIdOf({ values: request.contextValues, requestHeader: request.header }),
      );
    };
    try {
      const response = await next(request);
      if (!response.stream) return response;
      return { ...response, message: endWith(request.signal, mapFailure(response.message, fail)) };
    } catch (error) {
      throw fail(error);
    } finally {
      if (!request.stream) {
        const ms = performance.now() - startedMs;
        seconds.observe({ service, method: request.method.name }, ms / 1000);
        if (logger.isLevelEnabled("debug")) {
          const { header, contextValues, method } = request;
          const entry = {
            method: method.name,
            request_id: requestIdOf({ values: contextValues, requestHeader: header }),
            ms: Math.round(ms),
          };
          logger.debug({ ...entry, caller: contextValues.get(callerKey)?.service }, "call ended");
        }
      }
    }
  };
}

const validationInterceptor: Interceptor = (next) => (request) => {
  if (request.stream) return next({ ...request, message: validateEach(request) });
  validate(request.method.input, request.message);
  return next(request);
};

async function* validateEach(request: StreamRequest): StreamRequest["message"] {
  for await (const message of request.message) {
    validate(request.method.input, message);
    yield message;
  }
}

/**
 * Ends a handler's stream when its call has ended. Without a network nothing else would, and a generator that is
 * suspended at a `yield` would never reach its `finally`.
 */
function endWith<T>(signal: AbortSignal, messages: AsyncGenerator<T>): AsyncGenerator<T> {
  const end = () => {
    // The messages themselves have reported a failure.
    messages.return(undefined).catch(() => {});
  };
  signal.addEventListener("abort", end, { once: true });
  return messages;
}

/** Yields the same messages, and maps a failure with `fail`. */
async function* mapFailure<T>(messages: AsyncIterable<T>, fail: (error: unknown) => Error): AsyncGenerator<T> {
  try {
    yield* messages;
  } catch (error) {
    throw fail(error);
  }
}

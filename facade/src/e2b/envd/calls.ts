import {
  type CallOptions,
  Code,
  ConnectError,
  type ConnectRouter,
  createConnectRouter,
  createContextKey,
  createContextValues,
  type HandlerContext,
  type Interceptor,
} from "@connectrpc/connect";
import type { UniversalHandler, UniversalServerResponse } from "@connectrpc/connect/protocol";
import { DomainError } from "@sandgate/kit/base/domain-error";
import { mebibyte } from "@sandgate/kit/base/sizes";
import type { FastifyReply, FastifyRequest } from "fastify";
import type { App } from "../../pipeline/base/app.ts";
import { callFor } from "../../pipeline/base/request-context.ts";
import type { RouteRules } from "../../pipeline/base/route-rules.ts";
import { receiveBody, sendBody } from "../../pipeline/live/bodies.ts";
import type { RouteContext } from "../../pipeline/route.ts";
import { leaveBodies } from "../../pipeline/validation/body-parser.ts";
import { isGone, sayCallError, toCallError } from "../errors.ts";
import { boundMessage, boundMessages } from "./message-bounds.ts";

/** What a call is about, and what became of it. */
export interface EnvdCall {
  request: FastifyRequest;
  sandbox: string;
  /** Why it failed, if it did. */
  failure?: DomainError;
}

const callKey = createContextKey<EnvdCall | undefined>(undefined, { description: "e2b call" });
/** The largest message of a call. */
const maxMessageBytes = 4 * mebibyte;
/** Node's timers take no more, and no sandbox lives for so long. */
const maxTimerMs = 2 ** 31 - 1;
const defaultPingSeconds = 90;
const timeoutHeader = "connect-timeout-ms";

/** The call that a handler answers. */
export function envdCallOf(context: HandlerContext): EnvdCall {
  const call = context.values.get(callKey);
  if (!call) throw new Error("a call of envd came without its request");
  return call;
}

/** Options of a call to a service that ends with the call of envd. */
export function optionsFor(context: HandlerContext, o: { timeoutMs?: number } = {}): CallOptions {
  return callFor(envdCallOf(context).request, { signal: context.signal, ...o });
}

/** How long the client gives the call, in milliseconds. Undefined: it may take any time. */
export function timeoutOf({ request }: EnvdCall): number | undefined {
  const { [timeoutHeader]: given } = request.headers;
  return typeof given === "string" && /^\d{1,10}$/.test(given) ? Number(given) : undefined;
}

/** After how long a silence the client wants a sign of life, in milliseconds. */
export function pingMsOf({ request: { headers } }: EnvdCall): number {
  const seconds = Number(headers["keepalive-ping-interval"]);
  return 1000 * (seconds >= 1 && seconds <= 3_600 ? seconds : defaultPingSeconds);
}

/** Adds the methods of envd's services as routes, each with the rules of what it does. */
export function addCallRoutes(
  app: App,
  { live, logger }: RouteContext,
  o: { services(router: ConnectRouter): void; rulesOf: Readonly<Record<string, RouteRules>> },
): void {
  leaveBodies(app);
  const router = createConnectRouter({
    grpc: false,
    grpcWeb: false,
    readMaxBytes: maxMessageBytes,
    binaryOptions: { readUnknownFields: false },
    interceptors: [noteFailures],
    acceptCompression: [],
  });
  o.services(router);
  for (const handler of router.handlers) {
    const { requestPath: url, method } = handler;
    const given = o.rulesOf[`${method.parent.name}.${method.name}`];
    // Connect answers what has no handler, and here nothing does.
    if (!given) continue;
    const kind = method.methodKind === "unary" ? "unary" : "stream";
    app.post(
      url,
      { config: { rules: { ...given, sayError: sayCallError(kind) } }, schema: { hide: true } },
      (request, reply) => {
        const answer = ({ signal }: { signal: AbortSignal }) =>
          serve({ handler, request, reply, signal, onError: reportTo(request) });
        return kind === "stream" ? live.run(request, reply, answer) : answer({ signal: closeSignalOf(reply) });
      },
    );
  }

  function reportTo(request: FastifyRequest) {
    return (err: unknown) =>
      logger.warn({ request_id: request.id, route: request.pattern, err }, "a call of envd broke off");
  }
}

/** Aborts when the client has left, or was answered. */
function closeSignalOf({ raw }: FastifyReply): AbortSignal {
  const closed = new AbortController();
  raw.once("close", () => closed.abort());
  if (raw.destroyed) closed.abort();
  return closed.signal;
}

interface Served {
  handler: UniversalHandler;
  request: FastifyRequest;
  reply: FastifyReply;
  signal: AbortSignal;
  onError(error: unknown): void;
}

/** Has Connect answer a request. Throws what it failed with, unless it has begun to be answered. */
async function serve({ handler, request, reply, signal, onError }: Served): Promise<FastifyReply> {
  const call: EnvdCall = { request, sandbox: request.sandboxId };
  const header = headersFor(request);
  const isUnary = handler.method.methodKind === "unary";
  return receiveBody(request, reply, signal, async (body, failing) => {
    const answer = await handler({
      httpVersion: request.raw.httpVersion,
      method: "POST",
      url: `http://envd${handler.requestPath}`,
      header,
      body: isJson(header) ? (isUnary ? boundMessage(body) : boundMessages(body)) : body,
      signal: failing,
      contextValues: createContextValues().set(callKey, call),
    });
    if (call.failure) throw call.failure;
    describe(reply, answer);
    if (isUnary) return reply.send(await collect(answer));
    await sendBody(reply, { chunks: whileThere(call, answer.body), signal, onError });
    return reply;
  });
}

/** Of a sandbox that has ended the stream breaks off, as E2B's do. */
async function* whileThere(call: EnvdCall, chunks: AsyncIterable<Uint8Array> = none()): AsyncGenerator<Uint8Array> {
  for await (const chunk of chunks) {
    if (call.failure && isGone(call.failure)) throw call.failure;
    yield chunk;
  }
}

async function* none(): AsyncGenerator<Uint8Array> {}

function headersFor({ raw, headers }: FastifyRequest): Headers {
  const given = new Headers();
  for (const name of ["connect-protocol-version", "connect-content-encoding", "content-encoding", timeoutHeader]) {
    const { [name]: value } = headers;
    if (typeof value === "string") given.set(name, value);
  }
  given.set("content-type", contentTypeOf(raw.rawHeaders));
  if (Number(given.get(timeoutHeader)) > maxTimerMs) given.delete(timeoutHeader);
  return given;
}

function isJson(header: Headers): boolean {
  return /json/i.test(header.get("content-type") ?? "");
}

/** The type of a body that Fastify's parsers are kept from. */
export function contentTypeOf(rawHeaders: readonly string[]): string {
  const index = rawHeaders.findIndex((name, i) => i % 2 === 0 && name.toLowerCase() === "content-type");
  return rawHeaders[index + 1] ?? "";
}

function describe(reply: FastifyReply, { status, header }: UniversalServerResponse): void {
  reply.code(status);
  header?.forEach((value, name) => void reply.header(name, value));
}

async function collect({ body = none() }: UniversalServerResponse): Promise<Buffer> {
  const chunks: Uint8Array[] = [];
  for await (const chunk of body) chunks.push(chunk);
  return Buffer.concat(chunks);
}

/** Notes why a call failed, and says it as Connect does. */
const noteFailures: Interceptor = (next) => async (request) => {
  const { contextValues, signal } = request;
  const explain = (error: unknown): unknown => {
    // The services were left when the time was up.
    if (signal.aborted && ConnectError.from(signal.reason).code === Code.DeadlineExceeded) return signal.reason;
    if (!(error instanceof DomainError)) return error;
    const call = contextValues.get(callKey);
    if (call) call.failure ??= error;
    return toCallError(error);
  };
  try {
    const answer = await next(request);
    if (!answer.stream) return answer;
    return { ...answer, message: explaining(answer.message, explain) };
  } catch (error) {
    throw explain(error);
  }
};

async function* explaining<T>(messages: AsyncIterable<T>, explain: (error: unknown) => unknown): AsyncGenerator<T> {
  try {
    yield* messages;
  } catch (error) {
    throw explain(error);
  }
}

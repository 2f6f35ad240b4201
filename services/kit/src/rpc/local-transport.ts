import {
  create,
  type DescMessage,
  type DescMethod,
  type DescMethodStreaming,
  type DescMethodUnary,
  fromBinary,
  isMessage,
  type Message,
  type MessageInitShape,
  type MessageShape,
  toBinary,
} from "@bufbuild/protobuf";
import {
  Code,
  ConnectError,
  type ConnectRouter,
  type ConnectRouterOptions,
  createContextValues,
  createMethodImplSpec,
  createRouterTransport,
  createServiceImplSpec,
  type HandlerContext,
  type Interceptor,
  type MethodImplSpec,
  type StreamRequest,
  type StreamResponse,
  type Transport,
  type UnaryRequest,
  type UnaryResponse,
} from "@connectrpc/connect";
import { deepFreeze } from "../base/freeze.ts";
import { monotonicMs } from "../base/time.ts";
import { localHeadersKey } from "./context.ts";

type UnarySpec = MethodImplSpec & { kind: "unary" };
type StreamSpec = Exclude<MethodImplSpec, UnarySpec>;
type Invoke = ReturnType<Interceptor>;
type HeadersInit = ConstructorParameters<typeof Headers>[0];

/**
 * The reason with which a handler's signal aborts once its call is over. It is shared, since creating an error with its
 * stack costs more than a call.
 */
const ended = new ConnectError("the call has ended", Code.Canceled);

/**
 * Creates a transport to handlers in this process. Calls skip the HTTP framing of Connect's router transport, which costs
 * several times as much as the rest of a call, but have the same gate, interceptors, request limits, deadline and
 * signal. The handler gets a request as over a network: decoded from its bytes or, where that is the same, copied.
 * Responses, and the messages that a client streams, are passed without encoding, which would take a fifth of a call, and
 * most of the time of a large file. They are frozen, so that neither side can change them, but for bytes: whoever passes
 * these on no longer writes to them.
 */
export function createLocalTransport(
  routes: (router: ConnectRouter) => void,
  options: ConnectRouterOptions,
  readMaxBytes: number,
): Transport {
  const specs = new Map<DescMethod, MethodImplSpec>();
  const router = createRouterTransport((inner) => routes(recordAll(inner, specs)), {
    router: options,
    transport: { readMaxBytes },
  });

  return {
    async stream(method, signal, timeoutMs, header, input, values) {
      const spec = specs.get(method);
      if (!spec || spec.kind === "unary") return router.stream(method, signal, timeoutMs, header, input, values);
      const deadlineMs = deadlineOf(timeoutMs, options);
      const context = new LocalContext(method, header, deadlineMs);
      const received = receiveEach(spec, method, input, options.readMaxBytes);
      const answered = answerStream(spec, method, context, received, options);
      return new LocalStream(method, context, readUntilCanceled(context, signal, deadlineMs, answered));
    },
    async unary(method, signal, timeoutMs, header, input, values) {
      const spec = specs.get(method);
      if (spec?.kind !== "unary") return router.unary(method, signal, timeoutMs, header, input, values);
      const deadlineMs = deadlineOf(timeoutMs, options);
      const request = receive(method.input, create(method.input, input), options.readMaxBytes);
      const context = new LocalContext(method, header, deadlineMs);
      // A handler that ignores its signal goes on running.
      const response = await untilCanceled(context, signal, deadlineMs, answer(spec, context, request, options));
      if (!isMessage(response, method.output)) throw new Error(`${method.name} answered a ${response.$typeName}.`);
      return new LocalResponse(method, context, response);
    },
  };
}

/** Undefined: none. Throws for one beyond the limit. */
function deadlineOf(timeoutMs: number | undefined, { maxTimeoutMs }: ConnectRouterOptions): number | undefined {
  const deadlineMs = timeoutMs !== undefined && timeoutMs > 0 ? timeoutMs : undefined;
  if (deadlineMs !== undefined && deadlineMs > (maxTimeoutMs ?? Number.POSITIVE_INFINITY)) {
    throw new ConnectError(`timeout ${deadlineMs}ms must be <= ${maxTimeoutMs}`, Code.InvalidArgument);
  }
  return deadlineMs;
}

/**
 * What a handler learns about its call. Signal and headers are created when they are first read, because they cost more
 * than the rest of the call, and most handlers don't read them.
 */
class LocalContext implements HandlerContext {
  readonly protocolName = "local";
  readonly requestMethod = "POST";
  readonly values = createContextValues();
  readonly method: DescMethod;
  readonly #given: HeadersInit;
  readonly #endsAt: number | undefined;
  #requestHeader: Headers | undefined;
  #responseHeader: Headers | undefined;
  #responseTrailer: Headers | undefined;
  #controller: AbortController | undefined;
  #aborted: { reason: unknown } | undefined;

  constructor(method: DescMethod, header: HeadersInit, deadlineMs: number | undefined) {
    this.method = method;
    this.#given = header;
    if (isRecord(header)) this.values.set(localHeadersKey, header);
    this.#endsAt = deadlineMs === undefined ? undefined : monotonicMs() + deadlineMs;
  }

  get service() {
    return this.method.parent;
  }

  get url() {
    return `local:/${this.service.typeName}/${this.method.name}`;
  }

  get requestHeader() {
    this.#requestHeader ??= new Headers(this.#given);
    return this.#requestHeader;
  }

  get responseHeader() {
    this.#responseHeader ??= new Headers();
    return this.#responseHeader;
  }

  get responseTrailer() {
    this.#responseTrailer ??= new Headers();
    return this.#responseTrailer;
  }

  get signal() {
    if (!this.#controller) {
      this.#controller = new AbortController();
      if (this.#aborted) this.#controller.abort(this.#aborted.reason);
    }
    return this.#controller.signal;
  }

  readonly timeoutMs = () => (this.#endsAt === undefined ? undefined : this.#endsAt - monotonicMs());

  abort(reason: unknown): void {
    if (this.#aborted) return;
    this.#aborted = { reason };
    this.#controller?.abort(reason);
  }

  throwIfAborted(): void {
    if (this.#aborted) throw this.#aborted.reason;
  }
}

function isRecord(header: HeadersInit): header is Record<string, string> {
  return header !== undefined && !(header instanceof Headers) && !Array.isArray(header);
}

/** What interceptors see of a call. They may replace the message, but not the handler's context. */
class LocalRequest<I extends DescMessage, O extends DescMessage> implements UnaryRequest<I, O> {
  readonly stream = false;
  readonly method: DescMethodUnary<I, O>;
  readonly message: MessageShape<I>;
  readonly #context: LocalContext;

  constructor(method: DescMethodUnary<I, O>, context: LocalContext, message: MessageShape<I>) {
    this.method = method;
    this.message = message;
    this.#context = context;
  }

  get service() {
    return this.#context.service;
  }

  get requestMethod() {
    return this.#context.requestMethod;
  }

  get url() {
    return this.#context.url;
  }

  get signal() {
    return this.#context.signal;
  }

  get header() {
    return this.#context.requestHeader;
  }

  get contextValues() {
    return this.#context.values;
  }
}

class LocalResponse<I extends DescMessage, O extends DescMessage> implements UnaryResponse<I, O> {
  readonly stream = false;
  readonly method: DescMethodUnary<I, O>;
  readonly message: MessageShape<O>;
  readonly #context: LocalContext;

  constructor(method: DescMethodUnary<I, O>, context: LocalContext, message: MessageShape<O>) {
    this.method = method;
    this.message = message;
    this.#context = context;
  }

  get service() {
    return this.#context.service;
  }

  get header() {
    return this.#context.responseHeader;
  }

  get trailer() {
    return this.#context.responseTrailer;
  }
}

class LocalStream<I extends DescMessage, O extends DescMessage> implements StreamResponse<I, O> {
  readonly stream = true;
  readonly method: DescMethodStreaming<I, O>;
  readonly message: AsyncIterable<MessageShape<O>>;
  readonly #context: LocalContext;

  constructor(method: DescMethodStreaming<I, O>, context: LocalContext, message: AsyncIterable<MessageShape<O>>) {
    this.method = method;
    this.message = message;
    this.#context = context;
  }

  get service() {
    return this.#context.service;
  }

  get header() {
    return this.#context.responseHeader;
  }

  get trailer() {
    return this.#context.responseTrailer;
  }
}

async function answer(
  { method, impl }: UnarySpec,
  context: LocalContext,
  request: () => Message,
  { requestGate, interceptors = [] }: ConnectRouterOptions,
): Promise<Message> {
  await requestGate?.(context);
  context.throwIfAborted();
  const handle: Invoke = async (request) => {
    if (request.stream) throw new Error(`An interceptor made a stream of ${method.name}.`);
    return new LocalResponse(method, context, create(method.output, await impl(request.message, context)));
  };
  const invoke = interceptors.reduceRight((next, interceptor) => interceptor(next), handle);
  const response = await invoke(new LocalRequest(method, context, request()));
  if (response.stream) throw new Error(`An interceptor made a stream of ${method.name}.`);
  return deepFreeze(response.message);
}

async function* answerStream<I extends DescMessage, O extends DescMessage>(
  spec: StreamSpec,
  method: DescMethodStreaming<I, O>,
  context: LocalContext,
  message: AsyncIterable<MessageShape<I>>,
  { requestGate, interceptors = [] }: ConnectRouterOptions,
): AsyncGenerator<MessageShape<O>> {
  await requestGate?.(context);
  context.throwIfAborted();
  const handle: Invoke = async (request) => {
    if (!request.stream) throw new Error(`An interceptor made a single call of ${method.name}.`);
    return new LocalStream(request.method, context, handleStream(spec, request, context));
  };
  const invoke = interceptors.reduceRight((next, interceptor) => interceptor(next), handle);
  const { service, requestMethod, url, signal, requestHeader: header, values: contextValues } = context;
  const request = {
    stream: true as const,
    method,
    service,
    requestMethod,
    url,
    signal,
    header,
    contextValues,
    message,
  };
  const response = await invoke(request);
  if (!response.stream) throw new Error(`An interceptor made a single call of ${method.name}.`);
  for await (const each of response.message) {
    if (!isMessage(each, method.output)) throw new Error(`${method.name} answered a ${each.$typeName}.`);
    yield deepFreeze(each);
  }
}

async function* handleStream(
  { kind, method, impl }: StreamSpec,
  { message }: StreamRequest,
  context: LocalContext,
): AsyncGenerator<Message> {
  if (kind === "client_streaming") return yield create(method.output, await impl(message, context));
  const answers = kind === "bidi_streaming" ? impl(message, context) : impl(await readSingle(message), context);
  for await (const each of answers) yield create(method.output, each);
}

async function readSingle(messages: AsyncIterable<Message>): Promise<Message> {
  for await (const message of messages) return message;
  throw new ConnectError("the request is missing", Code.Unimplemented);
}

/** A single request is received as that of a unary call; of those that a client streams, each is bounded by its contract. */
async function* receiveEach<D extends DescMessage>(
  { kind }: StreamSpec,
  { input: desc }: { input: D },
  messages: AsyncIterable<MessageInitShape<D>>,
  most: number | undefined,
): AsyncGenerator<MessageShape<D>> {
  for await (const given of messages) {
    const message = create(desc, given);
    yield kind === "server_streaming" ? receive(desc, message, most)() : deepFreeze(message);
  }
}

/** Calls `cancel` when the deadline passes or the caller leaves. Returns a function that stops that. */
function watchCaller(
  signal: AbortSignal | undefined,
  deadlineMs: number | undefined,
  cancel: (error: ConnectError) => void,
): () => void {
  const leave = () => cancel(ConnectError.from(signal?.reason, Code.Canceled));
  const timer =
    deadlineMs === undefined
      ? undefined
      : setTimeout(() => cancel(new ConnectError("the operation timed out", Code.DeadlineExceeded)), deadlineMs);
  if (signal?.aborted) leave();
  else signal?.addEventListener("abort", leave);
  return () => {
    clearTimeout(timer);
    signal?.removeEventListener("abort", leave);
  };
}

/** Returns the answer, unless the deadline passes or the caller leaves first. Aborts the context in any case. */
function untilCanceled<T>(
  context: LocalContext,
  signal: AbortSignal | undefined,
  deadlineMs: number | undefined,
  answering: Promise<T>,
): Promise<T> {
  return new Promise((resolve, reject) => {
    const stop = watchCaller(signal, deadlineMs, (error) => {
      context.abort(error);
      reject(error);
    });
    const end = () => {
      stop();
      context.abort(ended);
    };
    answering.then(
      (answer) => {
        end();
        resolve(answer);
      },
      (error: unknown) => {
        end();
        reject(error);
      },
    );
  });
}

/** The same for a stream. A caller that stops reading has left. */
function readUntilCanceled<T>(
  context: LocalContext,
  signal: AbortSignal | undefined,
  deadlineMs: number | undefined,
  messages: AsyncGenerator<T>,
): AsyncIterableIterator<T> {
  let canceled: { error: ConnectError } | undefined;
  let giveUp: ((error: ConnectError) => void) | undefined;
  const stop = watchCaller(signal, deadlineMs, (error) => {
    canceled = { error };
    context.abort(error);
    giveUp?.(error);
  });
  const end = () => {
    stop();
    context.abort(ended);
  };
  return {
    [Symbol.asyncIterator]() {
      return this;
    },
    next() {
      return new Promise((resolve, reject) => {
        if (canceled) {
          end();
          return reject(canceled.error);
        }
        giveUp = reject;
        messages.next().then(
          (next) => {
            if (next.done) end();
            resolve(next);
          },
          (error: unknown) => {
            end();
            reject(error);
          },
        );
      });
    },
    async return() {
      end();
      // One that waits for its next message ends by its signal.
      messages.return(undefined).catch(() => {});
      return { done: true, value: undefined };
    },
  };
}

/** Messages with longer texts are encoded, so that the limit of a request's size is enforced. */
const maxCopiedText = 1024;

/** Returns a function for what the callee gets of the message. Throws if the message is larger than `most` bytes. */
function receive<D extends DescMessage>(
  desc: D,
  message: MessageShape<D>,
  most = Number.POSITIVE_INFINITY,
): () => MessageShape<D> {
  if (isPlain(message)) {
    const copy = { ...message };
    return () => copy;
  }
  const bytes = toBinary(desc, message);
  if (bytes.byteLength > most) {
    throw new ConnectError(`message size ${bytes.byteLength} is larger than ${most}`, Code.ResourceExhausted);
  }
  return () => fromBinary(desc, bytes);
}

/**
 * True if a copy of the message equals what its encoding would be decoded to. That holds for a few short texts, such as
 * ids.
 */
function isPlain(message: Message): boolean {
  if (Object.getPrototypeOf(message) !== Object.prototype) return false;
  return Object.values(message).every(
    (value) => typeof value === "string" && value.length <= maxCopiedText && value.isWellFormed(),
  );
}

/** Creates a router that also records methods in `specs`, except those with options of their own. */
function recordAll(inner: ConnectRouter, specs: Map<DescMethod, MethodImplSpec>): ConnectRouter {
  const record = (spec: MethodImplSpec) => void specs.set(spec.method, spec);
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

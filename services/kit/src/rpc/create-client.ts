import type { DescMethod, DescMethodStreaming, DescService } from "@bufbuild/protobuf";
import {
  type CallOptions,
  type Client,
  createClient as createConnectClient,
  type Transport,
} from "@connectrpc/connect";

/**
 * Creates a client as Connect does, but for how it reads what services stream: by the language's own generators.
 * Connect's are compiled for older engines, and make 18 KiB of objects in a short call.
 */
export function createClient<S extends DescService>(service: S, transport: Transport): Client<S> {
  const client = createConnectClient(service, transport);
  // What is sent has the type of the method, as the client's own type says.
  const replace = (method: DescMethod, toMessages: (input: never) => AsyncIterable<never>) => {
    const call = (input: never, options?: CallOptions) =>
      readAnswers(transport, method as DescMethodStreaming, toMessages(input), options);
    Object.assign(client, { [method.localName]: call });
  };
  for (const method of service.methods) {
    if (method.methodKind === "server_streaming") replace(method, one);
    if (method.methodKind === "bidi_streaming") replace(method, (messages) => messages);
  }
  return client;
}

/** Calls at once. As of Connect's client, whoever stops reading must abort the call's signal. */
function readAnswers(
  transport: Transport,
  method: DescMethodStreaming,
  input: AsyncIterable<never>,
  { signal, timeoutMs, headers, contextValues, onHeader, onTrailer }: CallOptions = {},
): AsyncIterable<unknown> {
  const called = transport.stream(method, signal, timeoutMs, headers, input, contextValues);
  async function* read() {
    const { header, message, trailer } = await called;
    onHeader?.(header);
    yield* message;
    onTrailer?.(trailer);
  }
  const answers = read();
  return { [Symbol.asyncIterator]: () => ({ next: () => answers.next() }) };
}

async function* one<T>(item: T): AsyncGenerator<T> {
  yield item;
}

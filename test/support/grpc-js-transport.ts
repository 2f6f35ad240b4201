import {
  create,
  type DescMessage,
  type DescMethod,
  fromBinary,
  type MessageInitShape,
  type MessageShape,
  toBinary,
} from "@bufbuild/protobuf";
import { Code, ConnectError, type Transport } from "@connectrpc/connect";
import { findTrailerError } from "@connectrpc/connect/protocol-grpc";
import { type CallOptions, Client, credentials, Metadata, type StatusObject, status } from "@grpc/grpc-js";

type GivenHeaders = ConstructorParameters<typeof Headers>[0];

/**
 * grpc-js behind Connect's Transport: unary calls and server streams over HTTP/2 without TLS, to `address` in grpc-js's
 * own notation, such as "ipv4:127.0.0.1:8081" or, spread over all its addresses, "dns:identity:8081".
 */
export function createGrpcJsTransport(o: { address: string; readMaxBytes: number }): Transport {
  const client = new Client(o.address, credentials.createInsecure(), {
    "grpc.max_receive_message_length": o.readMaxBytes,
    "grpc.service_config": JSON.stringify({ loadBalancingConfig: [{ round_robin: {} }] }),
  });
  const codecs = new Map<DescMethod, unknown>();

  function codecOf<I extends DescMessage, O extends DescMessage>(method: DescMethod & { input: I; output: O }) {
    const known = codecs.get(method);
    // What is kept under a method was made for it.
    if (known) return known as Codec<I, O>;
    const made = createCodec(method);
    codecs.set(method, made);
    return made;
  }

  return {
    unary(method, signal, timeoutMs, header, input) {
      if (signal?.aborted) return Promise.reject(ConnectError.from(signal.reason, Code.Canceled));
      const { path, write, read } = codecOf(method);
      return new Promise((resolve, reject) => {
        let responseHeader: Metadata | undefined;
        let message: MessageShape<typeof method.output> | undefined;
        const call = client.makeUnaryRequest(
          path,
          write,
          read,
          input,
          toMetadata(header),
          within(timeoutMs),
          (_, answer) => {
            message = answer;
          },
        );
        const cancel = () => call.cancel();
        signal?.addEventListener("abort", cancel);
        call.once("metadata", (metadata: Metadata) => {
          responseHeader = metadata;
        });
        // The last event of a call, after its answer.
        call.once("status", (ended: StatusObject) => {
          signal?.removeEventListener("abort", cancel);
          if (message === undefined) return reject(toError(ended, signal));
          resolve({
            stream: false,
            service: method.parent,
            method,
            header: toHeaders(responseHeader),
            trailer: toHeaders(ended.metadata),
            message,
          });
        });
      });
    },
    async stream(method, signal, timeoutMs, header, input) {
      if (method.methodKind !== "server_streaming") throw new ConnectError("only servers stream", Code.Unimplemented);
      signal?.throwIfAborted();
      const { path, write, read } = codecOf(method);
      const { value: request } = await input[Symbol.asyncIterator]().next();
      const call = client.makeServerStreamRequest(path, write, read, request, toMetadata(header), within(timeoutMs));
      const cancel = () => call.cancel();
      signal?.addEventListener("abort", cancel);
      const trailer = new Headers();
      const ended = new Promise<StatusObject>((resolve) => {
        call.once("status", (status: StatusObject) => {
          signal?.removeEventListener("abort", cancel);
          for (const [name, value] of toHeaders(status.metadata)) trailer.append(name, value);
          resolve(status);
        });
      });
      const begun = new Promise<Metadata>((resolve) => call.once("metadata", resolve));
      // The error of the stream is its status once more.
      call.once("error", () => {});
      const first = await Promise.race([begun, ended]);
      if (!(first instanceof Metadata) && first.code !== status.OK) throw toError(first, signal);
      return {
        stream: true,
        service: method.parent,
        method,
        header: toHeaders(first instanceof Metadata ? first : undefined),
        trailer,
        message: (async function* () {
          try {
            yield* call;
          } catch {
            throw toError(await ended, signal);
          } finally {
            call.cancel();
          }
        })(),
      };
    },
  };
}

interface Codec<I extends DescMessage, O extends DescMessage> {
  path: string;
  write(message: MessageInitShape<I>): Buffer;
  read(bytes: Buffer): MessageShape<O>;
}

function createCodec<I extends DescMessage, O extends DescMessage>(
  method: DescMethod & { input: I; output: O },
): Codec<I, O> {
  return {
    path: `/${method.parent.typeName}/${method.name}`,
    write(message) {
      const bytes = toBinary(method.input, create(method.input, message));
      return Buffer.from(bytes.buffer, bytes.byteOffset, bytes.byteLength);
    },
    read: (bytes) => fromBinary(method.output, bytes),
  };
}

/** 0 and undefined: no deadline. */
function within(timeoutMs: number | undefined): CallOptions {
  return timeoutMs ? { deadline: Date.now() + timeoutMs } : {};
}

function toMetadata(header: GivenHeaders): Metadata {
  const metadata = new Metadata();
  for (const [name, value] of new Headers(header)) {
    metadata.set(name, name.endsWith("-bin") ? Buffer.from(value, "base64") : value);
  }
  return metadata;
}

function toHeaders(metadata: Metadata | undefined): Headers {
  const header = new Headers();
  for (const [name, values] of Object.entries(metadata?.toJSON() ?? {})) {
    for (const value of values) header.append(name, typeof value === "string" ? value : value.toString("base64"));
  }
  return header;
}

/**
 * The error of a call with its details, as Connect reads them from the trailer, whose protocol fields grpc-js has taken
 * out.
 */
function toError({ code, details, metadata }: StatusObject, signal: AbortSignal | undefined): ConnectError {
  if (signal?.aborted) return ConnectError.from(signal.reason, Code.Canceled);
  const trailer = toHeaders(metadata);
  trailer.set("grpc-status", String(code));
  trailer.set("grpc-message", encodeURIComponent(details));
  return findTrailerError(trailer) ?? new ConnectError("The call was answered without a message.", Code.Unimplemented);
}

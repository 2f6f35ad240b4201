import {
  create,
  type DescMessage,
  type DescMethod,
  type MessageInitShape,
  ScalarType,
  toBinary,
} from "@bufbuild/protobuf";
import { reflect } from "@bufbuild/protobuf/reflect";
import { BinaryWriter, WireType } from "@bufbuild/protobuf/wire";
import { createContextValues, type Transport } from "@connectrpc/connect";
import { createMethodUrl, runStreamingCall } from "@connectrpc/connect/protocol";
import { createTransport, requestHeader, validateResponse } from "@connectrpc/connect/protocol-connect";
import { createNodeHttpClient, type Http2SessionManager } from "@connectrpc/connect-node";
import { inTurns } from "../base/turns.ts";
import { errorLimits, limitMessage, type MessageLimits } from "./message-limits.ts";
import { prefixBytes, readMessages } from "./received-messages.ts";

/** What calls need of a session manager. */
export type Sessions = Pick<Http2SessionManager, "authority" | "request" | "notifyResponseByteRead">;

/** Of one message. */
const maxSentBytes = 0xffff_ffff;

/**
 * Creates Connect's transport over HTTP/2, without compression. What is streamed is encoded and decoded here: Connect
 * copies each message three times, which took two fifths of the processor time of a file on its way into a sandbox, and
 * makes a fifth of all objects of a command. What a server streams comes in turns of the event loop, however small its
 * messages are.
 */
export function createConnectTransport(o: {
  baseUrl: string;
  sessionManager: Sessions;
  /** The largest message that is received. */
  readMaxBytes: number;
  /**
   * Tighter limits of what a method answers, for a server that is not trusted. Fields that the contract doesn't have are
   * dropped then.
   */
  limitsOf?(method: DescMethod): MessageLimits;
}): Transport {
  const request = createNodeHttpClient({ httpVersion: "2", sessionProvider: () => o.sessionManager });

  /** Connect's own transport for a unary call. */
  function open(method: DescMethod): Transport {
    const limits = o.limitsOf?.(method);
    return createTransport({
      baseUrl: o.baseUrl,
      async httpClient(sent) {
        const response = await request(sent);
        if (!limits) return response;
        const { status, body } = response;
        return { ...response, body: limitMessage(method.output, status === 200 ? limits : errorLimits, body) };
      },
      useBinaryFormat: true,
      // Of a message that is kept they would keep all its bytes.
      binaryOptions: { readUnknownFields: !limits },
      interceptors: [],
      // Compression would take more time than it saves between machines of one network.
      acceptCompression: [],
      sendCompression: null,
      compressMinBytes: 0,
      readMaxBytes: limits?.maxBytes ?? o.readMaxBytes,
      writeMaxBytes: maxSentBytes,
    });
  }

  return {
    unary: (method, ...call) => open(method).unary(method, ...call),
    stream(method, signal, timeoutMs = 0, header, input, values) {
      const limitMs = timeoutMs > 0 ? timeoutMs : undefined;
      return runStreamingCall<typeof method.input, typeof method.output>({
        interceptors: [],
        ...(signal && { signal }),
        ...(limitMs && { timeoutMs: limitMs }),
        req: {
          stream: true,
          service: method.parent,
          method,
          requestMethod: "POST",
          url: createMethodUrl(o.baseUrl, method),
          header: requestHeader(method.methodKind, true, limitMs, header, true),
          contextValues: values ?? createContextValues(),
          message: input,
        },
        async next(call) {
          const response = await request({
            url: call.url,
            method: call.requestMethod,
            header: call.header,
            signal: call.signal,
            body: encodeEach(method.input, call.message),
          });
          validateResponse(method.methodKind, true, response.status, response.header);
          const trailer = new Headers();
          const messages = readMessages(method.output, response.body, {
            maxBytes: o.readMaxBytes,
            limits: o.limitsOf?.(method),
            headers: response.header,
            trailers: trailer,
          });
          return { ...call, header: response.header, trailer, message: inTurns(messages) };
        },
      });
    },
  };
}

async function* encodeEach<D extends DescMessage>(
  desc: D,
  messages: AsyncIterable<MessageInitShape<D>>,
): AsyncGenerator<Uint8Array> {
  for await (const message of messages) yield encode(desc, message);
}

/** Encodes a message with what Connect writes in front of each. Its bytes are copied once if it has nothing else. */
function encode<D extends DescMessage>(desc: D, init: MessageInitShape<D>): Uint8Array {
  const message = create(desc, init);
  const [member, ...others] = desc.members;
  if (member?.kind !== "oneof" || others.length > 0 || message.$unknown) return envelop(toBinary(desc, message));
  const reflected = reflect(desc, message);
  const field = reflected.oneofCase(member);
  const value: unknown = field && reflected.get(field);
  if (field?.scalar !== ScalarType.BYTES || !(value instanceof Uint8Array)) return envelop(toBinary(desc, message));
  const start = new BinaryWriter().tag(field.number, WireType.LengthDelimited).uint32(value.length).finish();
  return envelop(start, value);
}

/** One message of these parts, with the flags and the length that Connect writes in front of it. */
function envelop(...parts: readonly Uint8Array[]): Uint8Array {
  const length = parts.reduce((sum, part) => sum + part.length, 0);
  const bytes = Buffer.allocUnsafe(prefixBytes + length);
  let end = bytes.writeUInt32BE(length, bytes.writeUInt8(0, 0));
  for (const part of parts) {
    bytes.set(part, end);
    end += part.length;
  }
  return bytes;
}

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
import type { Transport } from "@connectrpc/connect";
import type { UniversalClientResponse } from "@connectrpc/connect/protocol";
import { createTransport } from "@connectrpc/connect/protocol-connect";
import { createNodeHttpClient, type Http2SessionManager } from "@connectrpc/connect-node";
import { inTurns } from "../base/turns.ts";
import { errorLimits, limitMessage, limitMessages, type MessageLimits } from "./message-limits.ts";

/** What calls need of a session manager. */
export type Sessions = Pick<Http2SessionManager, "authority" | "request" | "notifyResponseByteRead">;

/** Of one message. */
const maxSentBytes = 0xffff_ffff;
const prefixBytes = 5;

/**
 * Creates Connect's transport over HTTP/2, without compression. What a client streams is encoded here: Connect copies
 * each message three times, which took two fifths of the processor time of a file on its way into a sandbox. What a
 * server streams comes in turns of the event loop, however small its messages are.
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

  /** Connect's own transport for a call. */
  function open(method: DescMethod, body?: AsyncIterable<Uint8Array>): Transport {
    const limits = o.limitsOf?.(method);
    const receive = ({ status, body: received }: UniversalClientResponse) => {
      if (method.methodKind !== "unary") return limitMessages(method.output, limits, received);
      return limits ? limitMessage(method.output, status === 200 ? limits : errorLimits, received) : received;
    };
    return createTransport({
      baseUrl: o.baseUrl,
      async httpClient(sent) {
        const response = await request(body ? { ...sent, body } : sent);
        return { ...response, body: receive(response) };
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
    async stream(method, signal, timeoutMs, header, input, values) {
      const sends = method.methodKind === "client_streaming";
      const transport = sends ? open(method, encodeEach(method.input, input)) : open(method);
      const toSend = sends ? withoutNext(input) : input;
      const response = await transport.stream(method, signal, timeoutMs, header, toSend, values);
      return { ...response, message: inTurns(response.message) };
    },
  };
}

/** For Connect, which ends what a client streams when the call does, and would read it. */
function withoutNext<T>(messages: AsyncIterable<T>): AsyncIterable<T> {
  return {
    [Symbol.asyncIterator]() {
      const iterator = messages[Symbol.asyncIterator]();
      const done = { done: true as const, value: undefined };
      return {
        next: async () => done,
        throw: async (reason) => (await iterator.throw?.(reason)) ?? done,
        return: async () => (await iterator.return?.()) ?? done,
      };
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

import {
  type ClientHttp2Stream,
  constants,
  type IncomingHttpHeaders,
  type IncomingHttpStatusHeader,
  type OutgoingHttpHeaders,
} from "node:http2";
import { create, fromBinary, toBinary } from "@bufbuild/protobuf";
import { Code, ConnectError, type Transport } from "@connectrpc/connect";
import {
  contentTypeUnaryProto,
  errorFromJsonBytes,
  protocolVersion,
  validateResponseWithCompression,
} from "@connectrpc/connect/protocol-connect";
import { createConnectTransport, type Http2SessionManager } from "@connectrpc/connect-node";

/**
 * The Connect protocol over one HTTP/2 connection. Streams take Connect's own client. Unary calls have one here, without
 * the iterables and linked signals that Connect's shares with streams, which cost more than the rest of a call, and without
 * compression.
 */
export function createHttp2Transport(o: {
  baseUrl: string;
  sessionManager: Http2SessionManager;
  readMaxBytes: number;
}): Transport {
  const { stream } = createConnectTransport({ ...o, httpVersion: "2", useBinaryFormat: true });
  return {
    stream,
    async unary(method, signal, timeoutMs, given, input) {
      const { status, head, body } = await exchange(o.sessionManager, {
        path: `/${method.parent.typeName}/${method.name}`,
        header: {
          ...Object.fromEntries(given instanceof Headers ? given : new Headers(given)),
          "content-type": contentTypeUnaryProto,
          "connect-protocol-version": protocolVersion,
          ...(timeoutMs && { "connect-timeout-ms": timeoutMs }),
        },
        body: toBinary(method.input, create(method.input, input)),
        readMaxBytes: o.readMaxBytes,
        timeoutMs,
        signal,
      });
      const { header, trailer } = readHeader(head);
      const failure = validateResponseWithCompression("unary", [], true, status, header).unaryError;
      if (failure) throw errorFromJsonBytes(body, header, failure);
      const message = fromBinary(method.output, body);
      return { stream: false, service: method.parent, method, header, trailer, message };
    },
  };
}

interface Exchange {
  path: string;
  header: OutgoingHttpHeaders;
  body: Uint8Array;
  readMaxBytes: number;
  /** 0 or undefined: as long as it takes. */
  timeoutMs: number | undefined;
  signal: AbortSignal | undefined;
}

interface Answer {
  status: number;
  head: IncomingHttpHeaders;
  body: Uint8Array;
}

/** Sends a request and reads its answer whole. What breaks on the way is the cause of an `unavailable`. */
function exchange(session: Http2SessionManager, o: Exchange): Promise<Answer> {
  const { signal, timeoutMs } = o;
  if (signal?.aborted) return Promise.reject(ConnectError.from(signal.reason, Code.Canceled));
  return new Promise((resolve, reject) => {
    let stream: ClientHttp2Stream | undefined;
    let isOver = false;
    const leave = () => fail(ConnectError.from(signal?.reason, Code.Canceled));
    const expire = () => fail(new ConnectError("the operation timed out", Code.DeadlineExceeded));
    signal?.addEventListener("abort", leave);
    const timer = timeoutMs ? setTimeout(expire, timeoutMs) : undefined;

    function end(): void {
      isOver = true;
      clearTimeout(timer);
      signal?.removeEventListener("abort", leave);
    }

    /** Only the first end counts. */
    function fail(error: unknown): void {
      if (isOver) return;
      end();
      reject(ConnectError.from(error, Code.Unavailable));
      stream?.close(constants.NGHTTP2_CANCEL);
    }

    function send(opened: ClientHttp2Stream): void {
      opened.on("error", fail);
      if (isOver) {
        opened.close(constants.NGHTTP2_CANCEL);
        return;
      }
      stream = opened;
      let head: IncomingHttpHeaders & IncomingHttpStatusHeader = {};
      const chunks: Buffer[] = [];
      let size = 0;
      opened.on("response", (headers) => {
        head = headers;
      });
      opened.on("data", (chunk: Buffer) => {
        session.notifyResponseByteRead(opened);
        chunks.push(chunk);
        size += chunk.byteLength;
        if (size > o.readMaxBytes)
          fail(new ConnectError(`larger than ${o.readMaxBytes} bytes`, Code.ResourceExhausted));
      });
      opened.on("end", () => {
        const { ":status": status, "content-length": length } = head;
        // What is cut short may end like this too. Then the stream's close fails the call.
        if (isOver || status === undefined || (length !== undefined && Number(length) !== size)) return;
        end();
        resolve({ status, head, body: Buffer.concat(chunks, size) });
      });
      opened.on("close", () =>
        fail(new ConnectError(`closed before the answer (${opened.rstCode})`, Code.Unavailable)),
      );
      opened.end(o.body);
    }

    session.request("POST", o.path, o.header, {}).then(send).catch(fail);
  });
}

/** A unary call's trailer comes among the header's fields, with a prefix. */
function readHeader(head: IncomingHttpHeaders): { header: Headers; trailer: Headers } {
  const [header, trailer] = [new Headers(), new Headers()];
  for (const [name, value] of Object.entries(head)) {
    if (name.startsWith(":") || value === undefined) continue;
    const [target, field] = name.startsWith("trailer-") ? [trailer, name.slice("trailer-".length)] : [header, name];
    for (const each of Array.isArray(value) ? value : [value]) target.append(field, each);
  }
  return { header, trailer };
}

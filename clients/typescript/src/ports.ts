import { withoutUndefined } from "./commands.ts";
import { ConnectionFailed } from "./errors.ts";
import {
  type CallOptions,
  type CreateOptions,
  fillPath,
  type Http,
  newIdempotencyKey,
  requireWebSocket,
} from "./http.ts";
import type { CreatedPreview, ListeningPort, Preview, PreviewLink } from "./records.ts";
import { delay } from "./time.ts";

/** The bytes of one TCP connection. */
export interface TcpConnection {
  readable: ReadableStream<Uint8Array>;
  writable: WritableStream<Uint8Array>;
}

export interface OpenPortOptions extends CreateOptions {
  /** Anybody who knows the address may use it; only with the token by default. */
  public?: boolean | undefined;
  /** 60 to 86,400; 3,600 by default. */
  ttlSeconds?: number | undefined;
  /** Which Host the server sees; the preview's by default. */
  hostHeader?: "preview" | "localhost" | undefined;
}

/** The ports of a sandbox. */
export class Ports {
  readonly #http: Http;
  readonly #sandboxId: string;

  constructor(http: Http, sandboxId: string) {
    this.#http = http;
    this.#sandboxId = sandboxId;
  }

  /** Opens a preview of a port. Its token, sent as X-Sandgate-Token, is shown this once. */
  open(port: number, o: OpenPortOptions = {}): Promise<CreatedPreview> {
    const { idempotencyKey = newIdempotencyKey(), signal, timeoutMs, ...rest } = o;
    return this.#http.call("POST", "/sandboxes/{sandbox_id}/ports", {
      params: { sandbox_id: this.#sandboxId },
      json: { port, ...withoutUndefined(rest) },
      idempotencyKey,
      signal,
      timeoutMs,
    });
  }

  /** The previews that are open. */
  async list(o: CallOptions = {}): Promise<Preview[]> {
    const params = { sandbox_id: this.#sandboxId };
    return (await this.#http.call("GET", "/sandboxes/{sandbox_id}/ports", { params, ...o })).previews;
  }

  get(id: string, o: CallOptions = {}): Promise<Preview> {
    return this.#http.call("GET", "/sandboxes/{sandbox_id}/ports/{preview_id}", { params: this.#params(id), ...o });
  }

  /** Ends a preview. */
  async close(id: string, o: CallOptions = {}): Promise<void> {
    await this.#http.call("DELETE", "/sandboxes/{sandbox_id}/ports/{preview_id}", { params: this.#params(id), ...o });
  }

  /** An address that opens a preview in a browser, once. */
  link(id: string, o: { ttlSeconds?: number | undefined } & CallOptions = {}): Promise<PreviewLink> {
    const { ttlSeconds, ...call } = o;
    return this.#http.call("POST", "/sandboxes/{sandbox_id}/ports/{preview_id}/links", {
      params: this.#params(id),
      json: withoutUndefined({ ttlSeconds }),
      repeatable: true,
      ...call,
    });
  }

  /**
   * Opens a TCP connection to a server that listens on a port, as a pair of streams of bytes. Not in browsers, whose
   * WebSockets carry no credential. A WebSocket can't be told to wait, so 64 MiB that haven't been read end the connection:
   * `readable` fails with ConnectionFailed.
   */
  async connect(port: number, o: CallOptions = {}): Promise<TcpConnection> {
    requireWebSocket();
    const params = { sandbox_id: this.#sandboxId, port: String(port) };
    const { address, headers } = await this.#http.socketTo(
      fillPath("/sandboxes/{sandbox_id}/ports/{port}/tcp", params),
      o,
    );
    // Node.js, Deno and Bun take headers, which the standard's types don't have.
    const Client = WebSocket as unknown as new (address: string, o: { headers: object }) => WebSocket;
    const socket = new Client(address, { headers });
    socket.binaryType = "arraybuffer";
    await opened(socket, o.signal);
    return toStreams(socket);
  }

  /** What listens in the sandbox. */
  async listening(o: CallOptions = {}): Promise<readonly ListeningPort[]> {
    const params = { sandbox_id: this.#sandboxId };
    return (await this.#http.call("GET", "/sandboxes/{sandbox_id}/listening", { params, ...o })).ports;
  }

  #params(id: string): { sandbox_id: string; preview_id: string } {
    return { sandbox_id: this.#sandboxId, preview_id: id };
  }
}

function opened(socket: WebSocket, signal: AbortSignal | undefined): Promise<void> {
  return new Promise((resolve, reject) => {
    const onAbort = () => {
      socket.close();
      reject(signal?.reason);
    };
    signal?.addEventListener("abort", onAbort, { once: true });
    socket.addEventListener("open", () => {
      signal?.removeEventListener("abort", onAbort);
      resolve();
    });
    socket.addEventListener("error", () => {
      signal?.removeEventListener("abort", onAbort);
      reject(new ConnectionFailed("The port can't be reached.", { hint: "Check that a server listens on it." }));
    });
  });
}

/** A sender waits while more than this isn't on its way. */
const maxBufferedBytes = 1024 * 1024;
const bufferedMs = 5;
/** What a slow reader may leave unread. */
const maxUnreadBytes = 64 * 1024 * 1024;
/** A frame of this size is taken by every server. */
const maxFrameBytes = 64 * 1024;

function toStreams(socket: WebSocket): TcpConnection {
  const readable = new ReadableStream<Uint8Array>(
    {
      start(controller) {
        socket.addEventListener("message", ({ data }: { data: unknown }) => {
          if (!(data instanceof ArrayBuffer)) return;
          if ((controller.desiredSize ?? 0) >= data.byteLength) return controller.enqueue(new Uint8Array(data));
          // Does nothing to what was cancelled.
          controller.error(new ConnectionFailed("More came from the port than was read."));
          socket.close();
        });
        socket.addEventListener("close", ({ code }: { code: number }) => {
          // What was cancelled is closed already.
          try {
            if (code === 1000 || code === 1005) controller.close();
            else controller.error(new ConnectionFailed(`The connection to the port broke off (${code}).`));
          } catch {}
        });
      },
      cancel: () => socket.close(),
    },
    new ByteLengthQueuingStrategy({ highWaterMark: maxUnreadBytes }),
  );
  const writable = new WritableStream<Uint8Array>({
    async write(chunk) {
      for (let at = 0; at < chunk.length; at += maxFrameBytes) {
        if (socket.readyState !== WebSocket.OPEN) throw new ConnectionFailed("The connection to the port has ended.");
        socket.send(chunk.slice(at, at + maxFrameBytes));
      }
      while (socket.readyState === WebSocket.OPEN && socket.bufferedAmount > maxBufferedBytes) await delay(bufferedMs);
    },
    close: () => socket.close(1000),
    abort: () => socket.close(),
  });
  return { readable, writable };
}

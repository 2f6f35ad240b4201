import { type ClientHttp2Session, type ClientHttp2Stream, connect, constants } from "node:http2";
import { type Duplex, PassThrough } from "node:stream";
import { setTimeout as delay } from "node:timers/promises";
import { createClient, type Transport } from "@connectrpc/connect";
import { createConnectTransport } from "@connectrpc/connect-node";
import { untilAborted } from "@sandgate/kit/base/abort";
import { mebibyte } from "@sandgate/kit/base/sizes";
import { minuteMs } from "@sandgate/kit/base/time";
import { type GetInfoResponse, HelperService } from "@sandgate/proto/helper/v1/helper";
import type { RuntimeOperations } from "../runtime/operations.ts";
import { fromHelperError, isConnectionLost } from "./helper-errors.ts";

/** How long the first call of a connection may take, the start of the helper included. */
const openMs = 15_000;
/** A dial finds nobody when the helper was killed just now. */
const attempts = 3;
const retryMs = 50;
const idleMs = minuteMs;
/** The largest message is a page of a long list of files. */
const readMaxBytes = 4 * mebibyte;
/** What may come unread, of one call and of all calls of a connection. */
const windowBytes = { call: mebibyte, connection: 4 * mebibyte };
const origin = "http://helper";

type SessionManager = NonNullable<
  Extract<Parameters<typeof createConnectTransport>[0], { httpVersion: "2" }>["sessionManager"]
>;

/** A connection to a sandbox's helper. */
export interface HelperConnection {
  readonly transport: Transport;
  /** What the helper said when it was connected. Another `instanceId` than before: all that ran was lost. */
  readonly info: GetInfoResponse;
}

/** Connections to helpers, one for each sandbox, opened on first use and closed after a minute without. */
export interface HelperConnections {
  /** Throws as `RuntimeOperations.connectHelper`, UPSTREAM_ERROR, or the signal's reason. */
  open(sandboxId: string, signal: AbortSignal): Promise<HelperConnection>;
  close(): void;
}

export function createHelperConnections(operations: RuntimeOperations): HelperConnections {
  const opened = new Map<string, Promise<OpenConnection>>();
  const closing = new AbortController();

  async function connectHelper(sandboxId: string): Promise<OpenConnection> {
    for (let attempt = 1; ; attempt++) {
      const limit = AbortSignal.any([closing.signal, AbortSignal.timeout(openMs)]);
      const stream = await operations.connectHelper(sandboxId, limit);
      const connection = new OpenConnection(stream);
      try {
        await connection.begin(limit);
        return connection;
      } catch (error) {
        connection.close();
        if (attempt === attempts || stream.errored || !isConnectionLost(error) || limit.aborted) {
          throw stream.errored ?? error;
        }
        await delay(retryMs * attempt);
      }
    }
  }

  function openShared(sandboxId: string): Promise<OpenConnection> {
    const opening = connectHelper(sandboxId);
    opened.set(sandboxId, opening);
    const forget = () => {
      if (opened.get(sandboxId) === opening) opened.delete(sandboxId);
    };
    opening.then((connection) => connection.onClose(forget), forget);
    return opening;
  }

  return {
    async open(sandboxId, signal) {
      signal.throwIfAborted();
      try {
        const known = await opened.get(sandboxId)?.catch(() => undefined);
        if (known?.isUsable) return known;
        return await untilAborted(opened.get(sandboxId) ?? openShared(sandboxId), signal, (reason) => {
          throw reason;
        });
      } catch (error) {
        if (signal.aborted) throw signal.reason;
        throw fromHelperError(error);
      }
    },
    close() {
      closing.abort();
      for (const opening of opened.values()) {
        opening.then(
          (connection) => connection.close(),
          () => undefined,
        );
      }
    },
  };
}

/**
 * What comes of a call. Node's own iterator takes an answer that has come whole before it is read for one that was cut
 * off, as short ones do where the connection is no socket.
 */
function readWhole(call: ClientHttp2Stream): NodeJS.AsyncIterator<Buffer> {
  const answer = new PassThrough();
  call.on("error", (error) => answer.destroy(error));
  call.once("close", () => {
    if (!call.readableEnded) answer.destroy(new Error("The call was cut off."));
  });
  answer.once("close", () => {
    if (!call.readableEnded) call.close(constants.NGHTTP2_CANCEL);
  });
  return call.pipe(answer)[Symbol.asyncIterator]();
}

/** HTTP/2 over a byte stream. All that comes is the tenant's word, and bounded. */
class OpenConnection implements HelperConnection {
  readonly transport: Transport;
  #info: GetInfoResponse | undefined;
  readonly #session: ClientHttp2Session;
  readonly #stream: Duplex;
  #calls = 0;
  #idle: NodeJS.Timeout | undefined;

  constructor(stream: Duplex) {
    this.#stream = stream;
    const session = connect(origin, {
      createConnection: () => stream,
      settings: { enablePush: false, initialWindowSize: windowBytes.call },
      maxSessionMemory: 10,
      maxHeaderListPairs: 64,
    });
    session.once("connect", () => session.setLocalWindowSize(windowBytes.connection));
    // A failed call tells why. What isn't HTTP/2 must not leave the program running.
    session.on("error", () => stream.destroy());
    session.on("close", () => stream.destroy());
    stream.on("error", () => session.destroy());
    stream.on("close", () => session.destroy());
    this.#session = session;
    const sessionManager: SessionManager = {
      authority: origin,
      request: async (method, path, headers, options) => {
        const call = session.request({ ...headers, ":method": method, ":path": path }, options);
        this.#begin();
        call.once("close", () => this.#end());
        call[Symbol.asyncIterator] = () => readWhole(call);
        return call;
      },
      notifyResponseByteRead() {},
    };
    this.transport = createConnectTransport({
      baseUrl: origin,
      httpVersion: "2",
      useBinaryFormat: true,
      sessionManager,
      readMaxBytes,
    });
  }

  get info(): GetInfoResponse {
    if (!this.#info) throw new Error("The connection has not begun.");
    return this.#info;
  }

  get isUsable(): boolean {
    return !this.#session.closed && !this.#session.destroyed;
  }

  async begin(signal: AbortSignal): Promise<void> {
    this.#info = await createClient(HelperService, this.transport).getInfo({}, { signal });
  }

  onClose(listener: () => void): void {
    if (this.isUsable) this.#session.once("close", listener);
    else listener();
  }

  close(): void {
    clearTimeout(this.#idle);
    this.#session.destroy();
    this.#stream.destroy();
  }

  #begin(): void {
    this.#calls++;
    clearTimeout(this.#idle);
  }

  #end(): void {
    this.#calls--;
    if (this.#calls === 0) this.#idle = setTimeout(() => this.close(), idleMs).unref();
  }
}

import { type ClientHttp2Session, connect } from "node:http2";
import type { Socket } from "node:net";
import type { Duplex } from "node:stream";
import { setTimeout as delay } from "node:timers/promises";
import type { DescMethod } from "@bufbuild/protobuf";
import type { Transport } from "@connectrpc/connect";
import { untilAborted } from "@sandgate/kit/base/abort";
import { mebibyte } from "@sandgate/kit/base/sizes";
import { minuteMs } from "@sandgate/kit/base/time";
import { createConnectTransport, type Sessions } from "@sandgate/kit/rpc/connect-transport";
import { createClient } from "@sandgate/kit/rpc/create-client";
import type { MessageLimits } from "@sandgate/kit/rpc/message-limits";
import { FileService } from "@sandgate/proto/helper/v1/file";
import { type GetInfoResponse, HelperService } from "@sandgate/proto/helper/v1/helper";
import { PortService } from "@sandgate/proto/helper/v1/port";
import { ProcessService } from "@sandgate/proto/helper/v1/process";
import type { RuntimeOperations } from "../runtime/operations.ts";
import { fromHelperError, isConnectionLost } from "./helper-errors.ts";
import { boundInfo } from "./helper-files.ts";
import type { OperationMetrics } from "./metrics.ts";
import { type PortChannel, PortChannels } from "./port-channels.ts";
import { toSocket } from "./socket-pair.ts";

/** How long the first call of a connection may take, the start of the helper included. */
const defaultOpenMs = 15_000;
/** A dial finds nobody when the helper was killed just now. */
const attempts = 3;
const retryMs = 50;
const idleMs = minuteMs;
/** The helper takes 1,000 calls of a connection at once, and what is beyond waits for one of them to end. */
const maxCalls = 900;
/** The largest message is a page of a long list of files. */
const readMaxBytes = 4 * mebibyte;
/** A part of a file has 256 KiB; a command has 128 KiB, and 4,096 words. */
const limits: MessageLimits = { maxBytes: mebibyte / 2, maxItems: 64, maxFields: 8_192 };
const limitsOfList = { maxBytes: readMaxBytes, maxFields: 131_072 };
const limitsOfMethods = new Map<DescMethod, MessageLimits>([
  // A page, and what tells where the next one begins.
  [FileService.method.list, { ...limitsOfList, maxItems: 1_064 }],
  // 4,096 of them, and one that tells that others were lost.
  [FileService.method.takeWatcherChanges, { ...limitsOfList, maxItems: 4_160 }],
  // As many as programs opened, of which a caller is told the first 1,000.
  [PortService.method.listListening, { ...limitsOfList, maxItems: 8_192 }],
  // 1,000 that ended and 64 that run, whose commands may have many short words.
  [ProcessService.method.listProcesses, { maxBytes: readMaxBytes, maxItems: 1_128, maxFields: 524_288 }],
]);
/** What may come unread, of one call and of all calls of a connection. */
const windowBytes = { call: mebibyte, connection: 4 * mebibyte };
/** A frame is passed on as it comes, so large ones take no memory, and fewer of them less time. */
const maxFrameBytes = mebibyte / 4;
const origin = "http://helper";
/** The first helpers that take data connections, and channels to ports. */
const firstWith = { data: 7, channels: 8 };
/** What tells them from a connection for calls. */
const marks = { data: 0, channel: 1 };
/** A container gets 32 connections past the engine, which those for calls and channels need, too. */
const maxDataConnections = 4;

/** A connection to a sandbox's helper. */
export interface HelperConnection {
  readonly transport: Transport;
  /** What the helper said when it was connected. Another `instanceId` than before: all that ran was lost. */
  readonly info: GetInfoResponse;
  /**
   * Opens the data connection of this id (see `FileService` of the helper), which is destroyed when the signal aborts.
   * Undefined when none can be had now: 4 are open, or it failed. Unset where there is no way past the engine, and with
   * a helper of an earlier version.
   */
  readonly openData: ((id: Uint8Array, signal: AbortSignal) => Promise<Socket | undefined>) | undefined;
  /**
   * Takes a channel for a connection to a port, which must follow. Undefined when none can be had now; unset where
   * `openData` may be. Throws the signal's reason.
   */
  readonly takeChannel: ((signal: AbortSignal) => Promise<PortChannel | undefined>) | undefined;
}

/**
 * Connections to helpers, one for each 900 open calls of a sandbox, opened when they are needed and closed after a minute
 * without use.
 */
export interface HelperConnections {
  /** Throws as `RuntimeOperations.connectHelper`, UPSTREAM_ERROR, or the signal's reason. */
  open(sandboxId: string, signal: AbortSignal): Promise<HelperConnection>;
  close(): void;
}

export function createHelperConnections(o: {
  operations: RuntimeOperations;
  metrics: Pick<OperationMetrics, "connections" | "bytes">;
  /** 15,000 unless set. */
  openMs?: number;
}): HelperConnections {
  const { operations, metrics, openMs = defaultOpenMs } = o;
  const opened = new Map<string, Set<OpenConnection>>();
  const openings = new Map<string, Promise<OpenConnection>>();
  const closing = new AbortController();

  async function openSocket(stream: Duplex): Promise<Socket> {
    const socket = await toSocket(stream);
    // Its close has been told already.
    if (socket.destroyed) return socket;
    metrics.connections.inc();
    socket.once("close", () => {
      metrics.connections.dec();
      metrics.bytes.inc({ direction: "in" }, socket.bytesRead);
      metrics.bytes.inc({ direction: "out" }, socket.bytesWritten);
    });
    return socket;
  }

  async function connectHelper(sandboxId: string): Promise<OpenConnection> {
    const { connectDaemon } = operations;
    const openAnother: OpenAnother | undefined =
      connectDaemon &&
      (async (signal) => {
        const socket = await connectDaemon(sandboxId, signal);
        return socket && openSocket(socket);
      });
    for (let attempt = 1; ; attempt++) {
      const limit = AbortSignal.any([closing.signal, AbortSignal.timeout(openMs)]);
      const stream = await operations.connectHelper(sandboxId, limit);
      const connection = new OpenConnection(await openSocket(stream), openAnother);
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

  function keep(sandboxId: string, connection: OpenConnection): void {
    const kept = opened.get(sandboxId) ?? new Set();
    opened.set(sandboxId, kept.add(connection));
    connection.onClose(() => {
      kept.delete(connection);
      if (kept.size === 0) opened.delete(sandboxId);
    });
    if (closing.signal.aborted) connection.close();
  }

  async function openShared(sandboxId: string): Promise<OpenConnection> {
    const opening = connectHelper(sandboxId);
    openings.set(sandboxId, opening);
    try {
      const connection = await opening;
      keep(sandboxId, connection);
      return connection;
    } finally {
      openings.delete(sandboxId);
    }
  }

  function takeFree(sandboxId: string): OpenConnection | undefined {
    const free = Array.from(opened.get(sandboxId) ?? []).find((connection) => connection.isFree);
    free?.expectCall();
    return free;
  }

  return {
    async open(sandboxId, signal) {
      signal.throwIfAborted();
      try {
        for (let free = takeFree(sandboxId); ; ) {
          if (free) return free;
          const opening = openings.get(sandboxId);
          if (!opening) return await untilAborted(openShared(sandboxId), signal);
          // Others who waited for it may fill it.
          free = await untilAborted(
            opening.then(() => takeFree(sandboxId)),
            signal,
          );
        }
      } catch (error) {
        if (signal.aborted) throw signal.reason;
        throw fromHelperError(error);
      }
    },
    close() {
      closing.abort();
      for (const connections of opened.values()) {
        for (const connection of connections) connection.close();
      }
    },
  };
}

type OpenAnother = (signal: AbortSignal) => Promise<Socket | undefined>;

const limitsOf = (method: DescMethod) => limitsOfMethods.get(method) ?? limits;

/** Opens a socket and says what it is for. Undefined where it fails: the connection for calls serves then. */
async function openMarked(open: OpenAnother, first: Buffer, signal: AbortSignal): Promise<Socket | undefined> {
  const socket = await open(signal).catch(() => undefined);
  if (!socket || socket.destroyed || signal.aborted) {
    socket?.destroy();
    signal.throwIfAborted();
    return undefined;
  }
  // Whoever reads or writes it learns of its end.
  socket.on("error", () => {});
  socket.write(first);
  return socket;
}

/** HTTP/2 over a socket. All that comes is the tenant's word, and bounded. */
class OpenConnection implements HelperConnection {
  readonly transport: Transport;
  #info: GetInfoResponse | undefined;
  readonly #session: ClientHttp2Session;
  readonly #socket: Socket;
  readonly #openAnother: OpenAnother | undefined;
  readonly #channels: PortChannels | undefined;
  #calls = 0;
  #dataConnections = 0;
  #idle: NodeJS.Timeout | undefined;

  constructor(socket: Socket, openAnother: OpenAnother | undefined) {
    this.#socket = socket;
    this.#openAnother = openAnother;
    this.#channels =
      openAnother &&
      new PortChannels({
        open: (signal) => openMarked(openAnother, Buffer.of(marks.channel), signal),
        begin: () => this.#begin(),
        end: () => this.#end(),
      });
    const session = connect(origin, {
      createConnection: () => socket,
      settings: { enablePush: false, initialWindowSize: windowBytes.call, maxFrameSize: maxFrameBytes },
      maxSessionMemory: 10,
      maxHeaderListPairs: 64,
    });
    session.once("connect", () => {
      // Its socket may have closed just before.
      if (!session.destroyed) session.setLocalWindowSize(windowBytes.connection);
    });
    // A failed call tells why. What isn't HTTP/2 must not leave the program running.
    session.on("error", () => socket.destroy());
    session.on("close", () => {
      socket.destroy();
      this.#channels?.close();
    });
    socket.on("error", () => session.destroy());
    socket.on("close", () => session.destroy());
    this.#session = session;
    const sessionManager: Sessions = {
      authority: origin,
      request: async (method, path, headers, options) => {
        const call = session.request({ ...headers, ":method": method, ":path": path }, options);
        this.#begin();
        call.once("close", () => this.#end());
        return call;
      },
      notifyResponseByteRead() {},
    };
    this.transport = createConnectTransport({ baseUrl: origin, sessionManager, readMaxBytes, limitsOf });
  }

  get info(): GetInfoResponse {
    if (!this.#info) throw new Error("The connection has not begun.");
    return this.#info;
  }

  get isUsable(): boolean {
    return !this.#session.closed && !this.#session.destroyed;
  }

  get isFree(): boolean {
    return this.isUsable && this.#calls < maxCalls;
  }

  /** Counts a call that begins in this turn of the event loop. */
  expectCall(): void {
    this.#begin();
    setImmediate(() => this.#end());
  }

  async begin(signal: AbortSignal): Promise<void> {
    const info = await createClient(HelperService, this.transport).getInfo({}, { signal });
    this.#info = boundInfo(info);
  }

  get openData(): HelperConnection["openData"] {
    const open = this.#openAnother;
    return open && this.info.version >= firstWith.data ? (id, signal) => this.#openData(open, id, signal) : undefined;
  }

  get takeChannel(): HelperConnection["takeChannel"] {
    const channels = this.#channels;
    return channels && this.info.version >= firstWith.channels ? (signal) => channels.take(signal) : undefined;
  }

  async #openData(open: OpenAnother, id: Uint8Array, signal: AbortSignal): Promise<Socket | undefined> {
    if (this.#dataConnections >= maxDataConnections) return undefined;
    this.#dataConnections++;
    let socket: Socket | undefined;
    try {
      socket = await openMarked(open, Buffer.from([marks.data, ...id]), signal);
    } finally {
      if (!socket) this.#dataConnections--;
    }
    if (!socket) return undefined;
    const abort = () => socket.destroy();
    signal.addEventListener("abort", abort);
    socket.once("close", () => {
      this.#dataConnections--;
      signal.removeEventListener("abort", abort);
    });
    return socket;
  }

  onClose(listener: () => void): void {
    if (this.isUsable) this.#session.once("close", listener);
    else listener();
  }

  close(): void {
    clearTimeout(this.#idle);
    this.#session.destroy();
    this.#socket.destroy();
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

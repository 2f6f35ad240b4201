import type { Socket } from "node:net";
import type { MessageInitShape } from "@bufbuild/protobuf";
import { Code, ConnectError } from "@connectrpc/connect";
import { monotonicMs } from "@sandgate/kit/base/time";
import type { ConnectRequestSchema, ConnectResponse } from "@sandgate/proto/helper/v1/port";
import { notListening } from "./helper-errors.ts";

/** Of a sandbox. What is beyond goes by calls. */
const maxChannels = 16;
/** How long calls serve once no channel could be opened. */
const restMs = 10_000;
const headerBytes = 4;
/** Of what follows a header. */
const maxPayloadBytes = 64 * 1024;
/** What may wait to be read. Each part counts for some bytes more than it has. */
const maxWaitingBytes = 256 * 1024;
const partBytes = 256;
/** What a frame says, see PortService of the helper. */
const kinds = { connect: 0, connected: 1, data: 2, eof: 3, notListening: 4, aborted: 5 } as const;

type Requests = AsyncIterable<MessageInitShape<typeof ConnectRequestSchema>>;
type Answer = ConnectResponse["part"];

/** A connection to a server, and what came of it that was not read yet. */
interface Use {
  waiting: (Answer | Error)[];
  waitingBytes: number;
  /** Nothing follows. */
  isOver: boolean;
  wake(): void;
}

/** A connection to the helper's daemon that reaches one server after another. All that comes is the tenant's word. */
export class PortChannel {
  readonly #socket: Socket;
  readonly #onFree: () => void;
  /** Of a frame that has not come whole. */
  #rest: Buffer = Buffer.alloc(0);
  #use: Use | undefined;

  /** @param socket of which the helper was told what it is for */
  constructor(socket: Socket, onFree: () => void) {
    this.#socket = socket;
    this.#onFree = onFree;
    socket.on("data", (chunk: Buffer) => this.#receive(chunk));
    socket.once("close", () =>
      this.#fail(new ConnectError("the connection to the helper has ended", Code.Unavailable)),
    );
    socket.resume();
  }

  /** As the helper's call of that name, one at a time. */
  async *connect(requests: Requests, { signal }: { signal: AbortSignal }): AsyncGenerator<{ part: Answer }> {
    const use: Use = { waiting: [], waitingBytes: 0, isOver: false, wake() {} };
    this.#use = use;
    const abort = () => void this.#socket.destroy();
    signal.addEventListener("abort", abort);
    try {
      signal.throwIfAborted();
      void this.#send(use, requests);
      while (!use.isOver || use.waiting.length > 0) {
        const part = use.waiting.shift();
        if (part instanceof Error) throw part;
        if (part) {
          use.waitingBytes -= sizeOf(part);
          if (use.waitingBytes < maxWaitingBytes) this.#socket.resume();
          yield { part };
        } else {
          await new Promise<void>((resolve) => {
            use.wake = resolve;
          });
        }
      }
    } finally {
      signal.removeEventListener("abort", abort);
      this.#use = undefined;
      if (use.isOver) this.#socket.resume();
      else this.#socket.destroy();
      this.#onFree();
    }
  }

  /** Sends nothing once the connection has ended: the next server would get it. */
  async #send(use: Use, requests: Requests): Promise<void> {
    const hasEnded = () => use.isOver || this.#use !== use;
    try {
      for await (const { part } of requests) {
        if (hasEnded()) return;
        if (part?.case === "port") this.#sendPort(part.value);
        else if (part?.case === "eof") this.#socket.write(headerOf(kinds.eof, 0));
        else if (part?.case === "data") {
          for (let at = 0; at < part.value.length && !hasEnded(); at += maxPayloadBytes) {
            await this.#sendData(part.value.subarray(at, at + maxPayloadBytes));
          }
        }
      }
    } catch (error) {
      if (hasEnded()) return;
      this.#fail(error as Error);
      this.#socket.destroy();
    }
  }

  #sendPort(port: number): void {
    const target = Buffer.alloc(2);
    target.writeUInt16BE(port);
    // It goes with the first data, which mostly follows at once.
    this.#socket.cork();
    this.#socket.write(Buffer.concat([headerOf(kinds.connect, target.length), target]));
    setImmediate(() => this.#socket.uncork());
  }

  /** Resolves when more can be taken. */
  #sendData(payload: Uint8Array): Promise<void> {
    return new Promise((resolve) => {
      this.#socket.cork();
      this.#socket.write(headerOf(kinds.data, payload.length));
      if (this.#socket.write(payload, () => resolve())) resolve();
      this.#socket.uncork();
    });
  }

  #receive(chunk: Buffer): void {
    let bytes = this.#rest.length > 0 ? Buffer.concat([this.#rest, chunk]) : chunk;
    while (bytes.length >= headerBytes) {
      const header = bytes.readUInt32BE();
      const length = header & 0xff_ffff;
      const end = headerBytes + length;
      if (length <= maxPayloadBytes && bytes.length < end) break;
      if (length > maxPayloadBytes || !this.#take(header >>> 24, bytes.subarray(headerBytes, end))) {
        this.#fail(new ConnectError("the helper sent what belongs to no connection", Code.Internal));
        this.#socket.destroy();
        return;
      }
      bytes = bytes.subarray(end);
    }
    this.#rest = bytes;
  }

  /** Returns whether the frame may come now. */
  #take(kind: number, payload: Buffer): boolean {
    const use = this.#use;
    if (!use || use.isOver) return false;
    switch (kind) {
      case kinds.connected:
        this.#add(use, { case: "connected", value: true });
        return true;
      case kinds.data:
        this.#add(use, { case: "data", value: payload });
        return true;
      case kinds.eof:
        use.isOver = true;
        this.#add(use, { case: "eof", value: true });
        return true;
      case kinds.notListening:
        this.#fail(notListening());
        return true;
      case kinds.aborted:
        this.#fail(new ConnectError("the connection was broken off", Code.Aborted));
        return true;
      default:
        return false;
    }
  }

  #add(use: Use, part: Answer): void {
    use.waiting.push(part);
    use.waitingBytes += sizeOf(part);
    if (use.waitingBytes > maxWaitingBytes) this.#socket.pause();
    use.wake();
  }

  #fail(error: Error): void {
    const use = this.#use;
    if (!use || use.isOver) return;
    use.isOver = true;
    use.waiting.push(error);
    use.wake();
  }
}

function sizeOf(part: Answer): number {
  return partBytes + (part.case === "data" ? part.value.length : 0);
}

function headerOf(kind: number, length: number): Buffer {
  const header = Buffer.allocUnsafe(headerBytes);
  header.writeUInt32BE(kind * 0x100_0000 + length);
  return header;
}

/** What channels need of the connection to the helper that they belong to. */
export interface ChannelOwner {
  /** Opens a socket of which the helper knows what it is for, unless there can be none now. Throws the signal's reason. */
  open(signal: AbortSignal): Promise<Socket | undefined>;
  /** Called with each connection's begin and end. */
  begin(): void;
  end(): void;
}

/** The channels of a sandbox. They are kept for the next connection. */
export class PortChannels {
  readonly #owner: ChannelOwner;
  readonly #sockets = new Set<Socket>();
  readonly #free: PortChannel[] = [];
  #opening = 0;
  /** By `monotonicMs`. */
  #restsUntil = 0;
  #isClosed = false;

  constructor(owner: ChannelOwner) {
    this.#owner = owner;
  }

  /** Takes one for a connection, which must follow. Undefined when none can be had now. Throws the signal's reason. */
  async take(signal: AbortSignal): Promise<PortChannel | undefined> {
    const channel = this.#free.pop() ?? (await this.#open(signal));
    if (channel) this.#owner.begin();
    return channel;
  }

  close(): void {
    this.#isClosed = true;
    for (const socket of this.#sockets) socket.destroy();
  }

  async #open(signal: AbortSignal): Promise<PortChannel | undefined> {
    if (this.#sockets.size + this.#opening >= maxChannels || monotonicMs() < this.#restsUntil) return undefined;
    this.#opening++;
    try {
      const socket = await this.#owner.open(signal);
      if (socket && !this.#isClosed) return this.#keep(socket);
      socket?.destroy();
      this.#restsUntil = monotonicMs() + restMs;
      return undefined;
    } finally {
      this.#opening--;
    }
  }

  #keep(socket: Socket): PortChannel {
    const channel: PortChannel = new PortChannel(socket, () => {
      this.#owner.end();
      if (this.#isClosed) socket.destroy();
      else if (!socket.destroyed) this.#free.push(channel);
    });
    this.#sockets.add(socket);
    socket.once("close", () => {
      this.#sockets.delete(socket);
      const at = this.#free.indexOf(channel);
      if (at >= 0) this.#free.splice(at, 1);
    });
    return channel;
  }
}

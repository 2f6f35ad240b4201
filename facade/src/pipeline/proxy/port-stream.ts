import { Duplex } from "node:stream";
import type { CallOptions } from "@connectrpc/connect";

/** What a call that connects to a port sends, and what it gets. */
type Sent<Start> = {
  part: { case: "start"; value: Start } | { case: "data"; value: Uint8Array } | { case: "eof"; value: boolean };
};
interface Received {
  part:
    | { case: "connected"; value: boolean }
    | { case: "data"; value: Uint8Array }
    | { case: "eof"; value: boolean }
    | { case: undefined; value?: undefined };
}

/** How long a call may take to end once the server has ended its side. */
const endMs = 1_000;
const bufferBytes = 64 * 1024;
/** HTTP answers that are read from it have the same, which small chunks fill with objects of some hundred bytes each. */
const unreadBytes = 4 * 1024;
/** Of one message. The contract takes more. */
const maxPartBytes = 256 * 1024;

/** Something written, and what is called once it was taken. */
interface Written {
  /** Undefined: no more follows. */
  data: Uint8Array | undefined;
  taken(): void;
}

/**
 * A TCP connection to a port in a sandbox, over a call that connects. Emits `connect` once there is one, and fails with
 * the call's DomainError. It ends when the server has ended its side.
 */
export class PortStream<Start = unknown> extends Duplex {
  /** From the server, and to it. */
  bytesRead = 0;
  bytesWritten = 0;
  readonly #call = new AbortController();
  readonly #received: Promise<void>;
  /** The server has ended its side: what is still written goes nowhere. */
  #isOver = false;
  #written: Written | undefined;
  #onWritten: (() => void) | undefined;
  #onRead: (() => void) | undefined;

  constructor(
    start: Start,
    call: (requests: AsyncIterable<Sent<Start>>, options: CallOptions) => AsyncIterable<Received>,
  ) {
    super({ allowHalfOpen: false, readableHighWaterMark: unreadBytes, writableHighWaterMark: bufferBytes });
    this.#received = this.#receive(call(this.#send(start), { signal: this.#call.signal, timeoutMs: 0 }));
  }

  override _write(data: Uint8Array, _encoding: BufferEncoding, taken: () => void): void {
    this.bytesWritten += data.length;
    this.#pass({ data, taken });
  }

  override _final(taken: () => void): void {
    this.#pass({ data: undefined, taken });
  }

  override _read(): void {
    this.#onRead?.();
  }

  override _destroy(error: Error | null, done: (error: Error | null) => void): void {
    if (this.#isOver) {
      const limit = setTimeout(() => this.#call.abort(), endMs).unref();
      void this.#received.then(() => clearTimeout(limit));
    } else {
      this.#call.abort();
    }
    this.#onRead?.();
    this.#onWritten?.();
    done(error);
  }

  /** Does nothing. Node's agent calls it of any socket that it uses again. */
  ref(): void {}

  /** Ends it once all is sent, as a socket's. Node's client calls it after an answer that ends its connection. */
  destroySoon(): void {
    if (this.writable) this.end();
    if (this.writableFinished) this.destroy();
    else this.once("finish", () => this.destroy());
  }

  #pass(written: Written): void {
    if (this.#isOver) {
      written.taken();
      return;
    }
    this.#written = written;
    this.#onWritten?.();
  }

  #take(): void {
    const written = this.#written;
    this.#written = undefined;
    written?.taken();
  }

  #end(): void {
    if (this.#isOver || this.destroyed) return;
    this.#isOver = true;
    this.#take();
    this.#onWritten?.();
    this.push(null);
  }

  async *#send(start: Start): AsyncGenerator<Sent<Start>> {
    yield { part: { case: "start", value: start } };
    while (!this.destroyed && !this.#isOver) {
      const written = this.#written;
      if (!written) {
        await new Promise<void>((resolve) => {
          this.#onWritten = resolve;
        });
        continue;
      }
      const { data } = written;
      try {
        if (!data) yield { part: { case: "eof", value: true } };
        for (let at = 0; data && at < data.length; at += maxPartBytes) {
          yield { part: { case: "data", value: data.subarray(at, at + maxPartBytes) } };
        }
      } finally {
        // Whoever sends has asked for more, or wants no more.
        if (this.#written === written) this.#take();
      }
      if (!data) return;
    }
  }

  async #receive(parts: AsyncIterable<Received>): Promise<void> {
    try {
      for await (const { part } of parts) {
        if (this.#call.signal.aborted) return;
        if (part.case === "connected") this.emit("connect");
        else if (part.case === "eof") this.#end();
        else if (part.case === "data") {
          this.bytesRead += part.value.length;
          if (this.push(bufferOf(part.value))) continue;
          await new Promise<void>((resolve) => {
            this.#onRead = resolve;
          });
        }
      }
      this.#end();
    } catch (error) {
      // The transport throws DomainErrors.
      this.destroy(error as Error);
    }
  }
}

function bufferOf({ buffer, byteOffset, byteLength }: Uint8Array): Buffer {
  return Buffer.from(buffer, byteOffset, byteLength);
}

/** Opens a connection to a port over a call that begins with `start`. */
export function openPortStream<Start>(
  start: Start,
  call: (requests: AsyncIterable<Sent<Start>>, options: CallOptions) => AsyncIterable<Received>,
): PortStream<Start> {
  return new PortStream(start, call);
}

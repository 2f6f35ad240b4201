import { IncomingMessage } from "node:http";

/** From this size on a chunk is kept as it is. */
export const largeBytes = 4 * 1024;

const none = Buffer.alloc(0);

/**
 * Bytes that wait, joined: kept as they came, small chunks would each be an object of some hundred bytes. They take at
 * most twice their length.
 */
export class JoinedBytes {
  length = 0;
  #block = none;

  add(chunk: Uint8Array): void {
    const length = this.length + chunk.length;
    if (length > this.#block.length) {
      const block = Buffer.allocUnsafeSlow(Math.max(length, 2 * this.#block.length));
      this.#block.copy(block, 0, 0, this.length);
      this.#block = block;
    }
    this.#block.set(chunk, this.length);
    this.length = length;
  }

  /** Gives all of them, and keeps none. */
  take(): Buffer {
    const taken = this.#block.subarray(0, this.length);
    this.#block = none;
    this.length = 0;
    return taken;
  }
}

/**
 * A request in whose body the small chunks of one read from its connection are joined. For the option `IncomingMessage` of
 * a server.
 */
export class JoinedRequest extends IncomingMessage {
  readonly #waiting = new JoinedBytes();

  override push(chunk: Buffer | null): boolean {
    if (chunk === null || chunk.length >= largeBytes) {
      this.#pushWaiting();
      return super.push(chunk);
    }
    // Node's parser lets ticks run between the chunks of one read.
    if (this.#waiting.length === 0) setImmediate(() => this.#pushWaiting());
    this.#waiting.add(chunk);
    return this.readableLength + this.#waiting.length < this.readableHighWaterMark;
  }

  #pushWaiting(): void {
    if (this.#waiting.length > 0) super.push(this.#waiting.take());
  }
}

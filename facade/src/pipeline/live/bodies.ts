import type { IncomingMessage, ServerResponse } from "node:http";
import { finished } from "node:stream/promises";
import { DomainError } from "@sandgate/kit/base/domain-error";
import { free } from "@sandgate/kit/base/memory";
import type { FastifyReply, FastifyRequest } from "fastify";
import { validationError } from "../errors/envelope.ts";
import { receiveWithoutLimit } from "../limits/receive-limit.ts";

/** How long a client may send nothing of a body, or take nothing of an answer. */
const stallMs = 60_000;
/** How long the rest of a body that is no longer wanted is read, so that its sender gets to read the answer. */
const lingerMs = 10_000;

/**
 * Passes the body of a request on while it comes. `use` gets its chunks, which end well only if all of it has come, and
 * a signal that aborts when it fails or `signal` does. Throws what the body failed with, or what `use` throws.
 */
export async function receiveBody<T>(
  { raw }: FastifyRequest,
  reply: FastifyReply,
  signal: AbortSignal,
  use: (chunks: AsyncIterable<Uint8Array>, signal: AbortSignal) => Promise<T>,
): Promise<T> {
  receiveWithoutLimit(raw);
  const failed = new AbortController();
  const done = new AbortController();
  async function* readChunks(): AsyncGenerator<Uint8Array> {
    try {
      yield* read(raw, done.signal);
    } catch (error) {
      failed.abort(error);
      throw error;
    }
  }
  try {
    return await use(readChunks(), AbortSignal.any([signal, failed.signal]));
  } catch (error) {
    throw failed.signal.aborted ? failed.signal.reason : error;
  } finally {
    done.abort();
    if (!raw.complete) reply.raw.once("finish", () => linger(raw));
  }
}

/**
 * Not the stream's own iterator, which would go on to hold what comes after it is left. What is awaited is listened for
 * once: new listeners for each chunk take a tenth of its time.
 */
async function* read(raw: IncomingMessage, left: AbortSignal): AsyncGenerator<Uint8Array> {
  let failure: DomainError | undefined;
  let wake: (() => void) | undefined;
  const go = () => wake?.();
  const fail = (error: unknown) => {
    failure ??= incomplete(error);
    go();
  };
  const timer = setTimeout(() => {
    // Whoever takes a chunk may take longer.
    if (wake) failure ??= stalled();
    go();
  }, stallMs);
  const stop = () => {
    clearTimeout(timer);
    raw.off("readable", go).off("end", go).off("close", go).off("error", fail);
    left.removeEventListener("abort", stop);
    go();
  };
  raw.on("readable", go).on("end", go).on("close", go).on("error", fail);
  left.addEventListener("abort", stop);
  try {
    while (!left.aborted) {
      const chunk: Buffer | null = raw.read();
      if (chunk !== null) yield chunk;
      else if (raw.readableEnded) return;
      else if (failure) throw failure;
      else if (raw.destroyed) throw incomplete();
      else {
        timer.refresh();
        await new Promise<void>((resolve) => {
          wake = resolve;
        });
        wake = undefined;
      }
    }
  } finally {
    stop();
  }
}

function stalled(): DomainError {
  return validationError([{ field: "body", issue: `must keep coming: nothing came for ${stallMs / 1000} s` }]);
}

function incomplete(cause?: unknown): DomainError {
  const violations = [{ field: "body", issue: "must be complete" }];
  return new DomainError("VALIDATION_ERROR", "body must be complete.", { violations, cause });
}

/** Reads the rest of a body that is no longer wanted, for some seconds. */
export function linger(raw: IncomingMessage): void {
  if (raw.complete) return;
  const timer = setTimeout(() => raw.destroy(), lingerMs).unref();
  raw.once("close", () => clearTimeout(timer));
  raw.once("end", () => clearTimeout(timer));
  raw.resume();
}

/**
 * Sends the body of an answer as it comes. One that fails, that the signal ends or that nobody takes breaks the
 * connection, so that nobody takes it for the whole. Throws the signal's reason when the client has left before.
 *
 * @param o.chunks of which each is freed once it was sent
 */
export async function sendBody(
  reply: FastifyReply,
  o: { chunks: AsyncIterable<Uint8Array>; signal: AbortSignal; onError(error: unknown): void },
): Promise<void> {
  const { raw } = reply;
  if (raw.destroyed) throw o.signal.reason;
  reply.hijack();
  raw.writeHead(reply.statusCode, reply.getHeaders() as Record<string, string>);
  try {
    for await (const chunk of o.chunks) {
      const mayGoOn = raw.write(chunk, (error) => {
        if (!error) free(chunk);
      });
      if (!mayGoOn) await awaitDrain(raw, o.signal);
    }
    raw.end();
    await finished(raw, { signal: o.signal });
  } catch (error) {
    breakOff(raw);
    if (!o.signal.aborted) o.onError(error);
  }
}

/** Ends an answer that has begun with its connection, so that nobody takes it for the whole. */
export function breakOff(response: ServerResponse): void {
  const { httpVersion, socket } = response.req;
  // It knows no chunks, and takes any end but a reset for the end of an answer without a length.
  if (httpVersion === "1.0") socket.resetAndDestroy();
  else response.destroy();
}

function awaitDrain(raw: ServerResponse, signal: AbortSignal): Promise<void> {
  return new Promise((resolve, reject) => {
    const settle = (error?: unknown) => {
      clearTimeout(timer);
      raw.off("drain", wake).off("close", leave);
      signal.removeEventListener("abort", leave);
      if (error) reject(error);
      else resolve();
    };
    const wake = () => settle();
    const leave = () => settle(signal.reason ?? new Error("the client has left"));
    const timer = setTimeout(() => settle(new Error(`the client took nothing for ${stallMs / 1000} s`)), stallMs);
    raw.on("drain", wake).on("close", leave);
    signal.addEventListener("abort", leave);
    if (signal.aborted) leave();
  });
}

import type { Backoff } from "../base/backoff.ts";

/** How a bus delivers events: the attempts, the delays between them and their limits. */
export interface DeliveryPolicy extends Backoff {
  /** How many attempts are made before an event becomes a dead letter. */
  attempts: number;
  /** A handler that takes longer has failed, even if it succeeds later. */
  handlerTimeoutMs: number;
  /** How many events a consumer handles at the same time in this process. */
  concurrency: number;
}

/** Twelve attempts are spread over two to four minutes. */
export const defaultDeliveryPolicy: DeliveryPolicy = {
  attempts: 12,
  firstMs: 200,
  lastMs: 60_000,
  handlerTimeoutMs: 60_000,
  concurrency: 8,
};

/** Returns the error of a handler, or undefined if it succeeds. Exceeding the timeout is an error too. */
export async function outcomeOf(handling: Promise<void>, timeoutMs: number): Promise<Error | undefined> {
  const timeout = Promise.withResolvers<Error>();
  const timer = setTimeout(() => timeout.resolve(new Error(`no outcome within ${timeoutMs} ms`)), timeoutMs);
  try {
    return await Promise.race([handling.then(() => undefined, toError), timeout.promise]);
  } finally {
    clearTimeout(timer);
  }
}

function toError(thrown: unknown): Error {
  return thrown instanceof Error ? thrown : new Error(String(thrown));
}

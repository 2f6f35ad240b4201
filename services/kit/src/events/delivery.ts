import type { Backoff } from "../base/backoff.ts";

/** How a bus treats its consumers: attempts, the delays between them and their limits. */
export interface DeliveryPolicy extends Backoff {
  /** Attempts before an event becomes a dead letter. */
  attempts: number;
  /** A handler that takes longer counts as failed, though it may yet succeed. */
  handlerTimeoutMs: number;
  /** Events that a consumer handles at once in this process. */
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

/** The error of a handler, undefined when it succeeded; one that takes too long has failed. */
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

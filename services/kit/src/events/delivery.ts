/** How a bus treats its consumers. */
export interface DeliveryPolicy {
  /** Attempts before an event becomes a dead letter. */
  attempts: number;
  /** The delay after the first failed attempt; it doubles with each, up to the last. */
  firstDelayMs: number;
  lastDelayMs: number;
  /** A handler that takes longer counts as failed, though it may yet succeed. */
  handlerTimeoutMs: number;
  /** Events that a consumer handles at once in this process. */
  concurrency: number;
}

/** Twelve attempts are spread over about four minutes. */
export const defaultDeliveryPolicy: DeliveryPolicy = {
  attempts: 12,
  firstDelayMs: 200,
  lastDelayMs: 60_000,
  handlerTimeoutMs: 60_000,
  concurrency: 8,
};

/** How long an event waits after its failed attempt of this number, from 1. */
export function delayAfter(policy: DeliveryPolicy, attempt: number): number {
  return Math.min(policy.lastDelayMs, policy.firstDelayMs * 2 ** (attempt - 1));
}

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

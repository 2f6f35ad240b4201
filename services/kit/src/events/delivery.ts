import { setTimeout as delay } from "node:timers/promises";
import { type Backoff, backoffMs } from "../base/backoff.ts";
import type { Logger } from "../base/logging.ts";
import { gauge, type Metrics } from "../base/metrics.ts";
import { isDependencyAway } from "./dependency-away.ts";

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

/** The delays between attempts while a dependency is away. */
const awayRetry: Backoff = { firstMs: 200, lastMs: 5_000 };

/** The events in this process that wait because something that their handlers depend on is away. */
export interface WaitingEvents {
  /** Counts an event until the returned function is called. */
  add(consumer: string): () => void;
  /** "ok", or which consumers wait. */
  state(): "ok" | string;
}

export function createWaitingEvents(metrics: Metrics): WaitingEvents {
  const waiting = new Set<{ consumer: string }>();
  gauge(metrics, {
    name: "sandgate_bus_waiting_events",
    help: "Events that wait because something that their handlers depend on is away",
    labelNames: ["consumer"],
    collect() {
      this.reset();
      for (const { consumer } of waiting) this.inc({ consumer });
    },
  });
  return {
    add(consumer) {
      const event = { consumer };
      waiting.add(event);
      return () => waiting.delete(event);
    },
    state() {
      // Others than operators may read it, so why is in the log alone.
      const consumers = new Set([...waiting].map(({ consumer }) => consumer));
      return consumers.size > 0 ? `events wait for what their handlers depend on: ${[...consumers].join(", ")}` : "ok";
    },
  };
}

/**
 * Hands an event to its consumer and returns the failure if there is one. A failure because a dependency is away is
 * none of the event: it waits, and is handed over again with backoff for as long as that lasts. Returns "stopped" if
 * the signal aborts meanwhile.
 */
export async function deliver(
  handle: () => Promise<void>,
  o: {
    consumer: string;
    policy: Pick<DeliveryPolicy, "handlerTimeoutMs">;
    waiting: WaitingEvents;
    logger: Logger;
    signal: AbortSignal;
  },
): Promise<"handled" | "stopped" | Error> {
  const { consumer, signal } = o;
  let endWait = () => {};
  try {
    for (let failures = 1; ; failures++) {
      const failure = await outcomeOf(handle(), o.policy.handlerTimeoutMs);
      if (failure === undefined) return "handled";
      if (!isDependencyAway(failure)) return failure;
      endWait();
      endWait = o.waiting.add(consumer);
      const level = failures === 1 ? "warn" : "debug";
      o.logger[level]({ err: failure, consumer }, "an event waits for something that its handler depends on");
      await delay(backoffMs(failures, awayRetry), undefined, { signal, ref: false }).catch(() => undefined);
      if (signal.aborted) return "stopped";
    }
  } finally {
    endWait();
  }
}

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

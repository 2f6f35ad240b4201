import { setTimeout as delay } from "node:timers/promises";
import { fromBinary } from "@bufbuild/protobuf";
import { type Event, EventSchema } from "@sandgate/proto/common/v1/event";
import { backoffMs } from "../base/backoff.ts";
import type { Logger } from "../base/logging.ts";
import { gauge, type Metrics } from "../base/metrics.ts";
import { startPeriodicTask } from "../base/periodic-task.ts";
import { openSqlite, type SqliteDatabase } from "../storage/sqlite.ts";
import { busMigrations, type transactions } from "./bus.local.transactions.ts";
import type { Consumption, DeadLetter, EventBus } from "./bus.ts";
import { createDeadLetters, deadLetterKeptMs } from "./dead-letters.ts";
import {
  createWaitingEvents,
  type DeliveryPolicy,
  defaultDeliveryPolicy,
  deliver,
  type WaitingEvents,
} from "./delivery.ts";

const trimEveryMs = 10 * 60 * 1000;
const trimBatchSize = 200;
/** How many kept messages follow a change of subjects in one transaction. */
const fillBatchSize = 500;
/** The longest timer, and so how often an idle consumer looks into the database without being woken. */
const longestSleepMs = 60_000;

/**
 * Opens the event bus of a platform in one process. Messages, consumers and deliveries are in a SQLite file of its own,
 * so a restart loses nothing. Signals stay in the process. Messages are kept for 7 days, and longer until every
 * consumer has handled them.
 */
export async function openLocalBus(options: {
  file: string;
  logger: Logger;
  metrics: Metrics;
  policy?: Partial<DeliveryPolicy>;
}): Promise<EventBus> {
  const { file, logger } = options;
  const policy = { ...defaultDeliveryPolicy, ...options.policy };
  const database = await openSqlite<typeof transactions>({
    file,
    migrations: busMigrations,
    transactions: new URL("./bus.local.transactions.ts", import.meta.url),
    logger,
  });
  const { read, write } = database;
  const identity = read.get<{ id: string }>("SELECT id FROM identity")?.id;
  if (identity === undefined) throw new Error(`${file} is damaged: the bus has no identity`);
  const deadLetterCount = gauge(options.metrics, {
    name: "sandgate_bus_dead_letters",
    help: "Events that a consumer has failed to handle for good",
    labelNames: ["consumer"],
  });
  const countDeadLetters = () => {
    for (const { name, count } of read.all<{ name: string; count: number }>(
      "SELECT name, dead_letters AS count FROM consumers",
    )) {
      deadLetterCount.set({ consumer: name }, count);
    }
  };
  countDeadLetters();

  const waiting = createWaitingEvents(options.metrics);
  const handlers = new Map<string, (event: Event) => Promise<void>>();
  const deadLetters = createDeadLetters({
    policy,
    handlers,
    store: {
      async list({ limit, afterId = "" }) {
        const { consumer, eventId } = parseDeadLetterId(afterId);
        return read
          .all<DeadLetterRow>(
            `${selectDeadLetters} (consumer, event_id) > (?, ?) ORDER BY consumer, event_id LIMIT ?`,
            consumer,
            eventId,
            limit,
          )
          .map(toDeadLetter);
      },
      async find(id) {
        const { consumer, eventId } = parseDeadLetterId(id);
        const row = read.get<DeadLetterRow>(`${selectDeadLetters} consumer = ? AND event_id = ?`, consumer, eventId);
        if (!row) return undefined;
        const letter = toDeadLetter(row);
        return { letter, readEvent: () => letter.event };
      },
      async remove(id) {
        const { consumer, eventId } = parseDeadLetterId(id);
        const isRemoved = await write.removeDeadLetter(consumer, eventId);
        countDeadLetters();
        return isRemoved;
      },
    },
  });

  const consumptions = new Set<LocalConsumption>();
  /** Deliveries that are being handled, by consumer, since consumptions with the same name share its events. */
  const inProgress = new Map<string, Set<number>>();
  const watches = new Set<{ topic: string; listener: (body: string) => void }>();
  const trimming = startPeriodicTask({
    what: `trim ${file}`,
    everyMs: trimEveryMs,
    logger,
    work: async (signal) => {
      while (!signal.aborted && (await write.trim(trimBatchSize)) === trimBatchSize);
      const before = new Date(Date.now() - deadLetterKeptMs);
      while (!signal.aborted && (await write.trimDeadLetters(before, trimBatchSize)) === trimBatchSize);
      countDeadLetters();
    },
  });

  return {
    async publish(events) {
      if (events.length === 0) return;
      await write.publish(events);
      for (const consumption of consumptions) consumption.wake();
    },

    async consume({ consumer, subjects, concurrency = policy.concurrency, handle }) {
      await write.subscribe(consumer, subjects);
      const taken = inProgress.get(consumer) ?? new Set<number>();
      inProgress.set(consumer, taken);
      const consumption = startConsumption({
        database,
        consumer,
        taken,
        policy: { ...policy, concurrency },
        waiting,
        logger,
        onDeadLetter: countDeadLetters,
        handle: async (bytes) => handle(fromBinary(EventSchema, bytes)),
      });
      consumptions.add(consumption);
      handlers.set(consumer, handle);
      return {
        async stop() {
          consumptions.delete(consumption);
          if (handlers.get(consumer) === handle) handlers.delete(consumer);
          await consumption.stop();
        },
      };
    },

    signal(topic, body = "") {
      for (const watch of watches) {
        if (watch.topic !== topic) continue;
        queueMicrotask(() => {
          if (!watches.has(watch)) return;
          try {
            watch.listener(body);
          } catch (error) {
            logger.error({ err: error, topic }, "a watcher failed");
          }
        });
      }
    },

    watch(topic, listener) {
      const watch = { topic, listener };
      watches.add(watch);
      return () => watches.delete(watch);
    },

    deadLetters,

    consumers: () => waiting.state(),

    identity: async () => identity,

    async close() {
      await Promise.all([...consumptions].map((consumption) => consumption.stop()));
      consumptions.clear();
      watches.clear();
      await trimming.stop();
      await database.close();
    },
  };
}

interface DeadLetterRow {
  consumer: string;
  eventId: string;
  bytes: Uint8Array;
  attempts: number;
  error: string;
  failedAt: number;
}

const selectDeadLetters =
  "SELECT consumer, event_id AS eventId, bytes, attempts, error, failed_at AS failedAt FROM dead_letters WHERE";

function toDeadLetter({ consumer, eventId, bytes, attempts, error, failedAt }: DeadLetterRow): DeadLetter {
  const id = `${consumer}.${eventId}`;
  return { id, consumer, event: fromBinary(EventSchema, bytes), attempts, error, failedAt: new Date(failedAt) };
}

function parseDeadLetterId(id: string): { consumer: string; eventId: string } {
  const [consumer = "", ...rest] = id.split(".");
  return { consumer, eventId: rest.join(".") };
}

interface LocalConsumption extends Consumption {
  wake(): void;
}

interface Delivery {
  seq: number;
  attempts: number;
  bytes: Uint8Array;
}

function startConsumption(options: {
  database: SqliteDatabase<typeof transactions>;
  consumer: string;
  /** The sequence numbers that handlers of all consumptions of this consumer have. */
  taken: Set<number>;
  policy: DeliveryPolicy;
  waiting: WaitingEvents;
  logger: Logger;
  onDeadLetter(): void;
  handle(bytes: Uint8Array): Promise<void>;
}): LocalConsumption {
  const { consumer, taken, policy, logger } = options;
  const { read, write } = options.database;
  const running = new Set<Promise<void>>();
  const stopping = new AbortController();
  const { signal } = stopping;
  let timer: NodeJS.Timeout | undefined;
  let isScheduled = false;

  const handle = async ({ seq, attempts, bytes }: Delivery): Promise<void> => {
    const attempt = attempts + 1;
    try {
      const failure = await deliver(() => options.handle(bytes), { ...options, signal });
      if (failure === "stopped") return;
      if (failure === "handled") return await write.acknowledge(consumer, seq);
      const isLast = attempt >= policy.attempts;
      logger.warn({ err: failure, consumer, attempt, isDeadLetter: isLast }, "handling an event failed");
      if (!isLast) return await write.postpone(consumer, seq, Date.now() + backoffMs(attempt, policy));
      await write.giveUp(consumer, seq, failure.message);
      options.onDeadLetter();
    } catch (error) {
      logger.error({ err: error, consumer }, "failed to store the outcome of an event, which will be redelivered");
      if (!signal.aborted) await delay(policy.firstMs);
    } finally {
      taken.delete(seq);
    }
  };

  const pump = () => {
    isScheduled = false;
    clearTimeout(timer);
    const free = policy.concurrency - running.size;
    if (signal.aborted || free <= 0) return;
    try {
      // All reads use the same time, so that nothing becomes due between them.
      const now = Date.now();
      const readDue = (condition: string, at: number) =>
        read.all<Delivery>(
          `SELECT seq, attempts, bytes FROM deliveries JOIN messages USING (seq)
           WHERE consumer = ? AND ${condition} ORDER BY due_at LIMIT ?`,
          consumer,
          at,
          free + taken.size,
        );
      // What is due later than after the longest delay was due before the clock was set back.
      const due = [...readDue("due_at <= ?", now), ...readDue("due_at > ?", now + policy.lastMs)].filter(
        ({ seq }) => !taken.has(seq),
      );
      for (const delivery of due.slice(0, free)) {
        taken.add(delivery.seq);
        const work: Promise<void> = handle(delivery).finally(() => {
          running.delete(work);
          wake();
        });
        running.add(work);
      }
      if (running.size < policy.concurrency) sleepUntilDue(now);
    } catch (error) {
      logger.error({ err: error, consumer }, "a consumer failed to read its events");
      timer = setTimeout(wake, policy.firstMs);
    }
  };
  const sleepUntilDue = (now: number) => {
    const next = read.get<{ dueAt: number | null }>(
      "SELECT min(due_at) AS dueAt FROM deliveries WHERE consumer = ? AND due_at > ?",
      consumer,
      now,
    )?.dueAt;
    const sleepMs = next ? Math.max(1, next - Date.now()) : longestSleepMs;
    timer = setTimeout(wake, Math.min(longestSleepMs, sleepMs));
    timer.unref();
  };
  const wake = () => {
    if (signal.aborted || isScheduled) return;
    isScheduled = true;
    setImmediate(pump);
  };
  /** What is kept follows while other writes go on, since there may be very much of it. */
  const filling = startPeriodicTask({
    what: `deliver kept events to ${consumer}`,
    everyMs: longestSleepMs,
    logger,
    async work(signal) {
      while (!signal.aborted && (await write.fill(consumer, fillBatchSize))) wake();
    },
  });

  wake();
  return {
    wake,
    async stop() {
      stopping.abort();
      clearTimeout(timer);
      await filling.stop();
      await Promise.all(running);
    },
  };
}

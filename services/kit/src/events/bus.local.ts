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
import { createDeadLetters } from "./dead-letters.ts";
import { type DeliveryPolicy, defaultDeliveryPolicy, outcomeOf } from "./delivery.ts";

const trimEveryMs = 10 * 60 * 1000;
const trimBatchSize = 200;
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
    const sql = `SELECT name, (SELECT count(*) FROM deliveries WHERE consumer = name AND parked_at IS NOT NULL) AS count
      FROM consumers`;
    for (const { name, count } of read.all<{ name: string; count: number }>(sql)) {
      deadLetterCount.set({ consumer: name }, count);
    }
  };
  countDeadLetters();

  const handlers = new Map<string, (event: Event) => Promise<void>>();
  const deadLetters = createDeadLetters({
    policy,
    handlers,
    store: {
      list: async ({ limit, afterId = "" }) =>
        read
          .all<DeadLetterRow>(`${selectDeadLetters} AND id > ? ORDER BY id LIMIT ?`, afterId, limit)
          .map(toDeadLetter),
      async find(id) {
        const row = read.get<DeadLetterRow>(`${selectDeadLetters} AND id = ?`, id);
        if (!row) return undefined;
        const letter = toDeadLetter(row);
        return { letter, readEvent: () => letter.event };
      },
      async remove(id) {
        const row = read.get<DeadLetterRow>(`${selectDeadLetters} AND id = ?`, id);
        const isRemoved = row !== undefined && (await write.removeDeadLetter(row.consumer, row.eventId));
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
    },
  });

  return {
    async publish(events) {
      if (events.length === 0) return;
      await write.publish(events);
      for (const consumption of consumptions) consumption.wake();
    },

    async consume({ consumer, subjects, handle }) {
      await write.subscribe(consumer, subjects);
      const taken = inProgress.get(consumer) ?? new Set<number>();
      inProgress.set(consumer, taken);
      const consumption = startConsumption({
        database,
        consumer,
        taken,
        policy,
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
  id: string;
  consumer: string;
  eventId: string;
  bytes: Uint8Array;
  attempts: number;
  error: string;
  failedAt: number;
}

const selectDeadLetters = `SELECT * FROM (
  SELECT consumer || '.' || event_id AS id, consumer, event_id AS eventId, bytes, attempts, error, parked_at AS failedAt
  FROM deliveries JOIN messages USING (seq) WHERE parked_at IS NOT NULL
) WHERE true`;

function toDeadLetter({ id, consumer, bytes, attempts, error, failedAt }: DeadLetterRow): DeadLetter {
  return { id, consumer, event: fromBinary(EventSchema, bytes), attempts, error, failedAt: new Date(failedAt) };
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
  logger: Logger;
  onDeadLetter(): void;
  handle(bytes: Uint8Array): Promise<void>;
}): LocalConsumption {
  const { consumer, taken, policy, logger } = options;
  const { read, write } = options.database;
  const running = new Set<Promise<void>>();
  let stopped = false;
  let timer: NodeJS.Timeout | undefined;
  let isScheduled = false;

  const deliver = async ({ seq, attempts, bytes }: Delivery): Promise<void> => {
    const attempt = attempts + 1;
    try {
      const failure = await outcomeOf(options.handle(bytes), policy.handlerTimeoutMs);
      if (failure === undefined) return await write.acknowledge(consumer, seq);
      const isLast = attempt >= policy.attempts;
      logger.warn({ err: failure, consumer, attempt, isDeadLetter: isLast }, "handling an event failed");
      const next = isLast ? undefined : { dueAt: Date.now() + backoffMs(attempt, policy) };
      await write.fail(consumer, seq, failure.message, next);
      if (isLast) options.onDeadLetter();
    } catch (error) {
      logger.error({ err: error, consumer }, "failed to store the outcome of an event, which will be redelivered");
      if (!stopped) await delay(policy.firstMs);
    } finally {
      taken.delete(seq);
    }
  };

  const pump = () => {
    isScheduled = false;
    clearTimeout(timer);
    const free = policy.concurrency - running.size;
    if (stopped || free <= 0) return;
    try {
      // Both reads use the same time, so that nothing becomes due between them.
      const now = Date.now();
      const due = read
        .all<Delivery>(
          `SELECT seq, attempts, bytes FROM deliveries JOIN messages USING (seq)
           WHERE consumer = ? AND parked_at IS NULL AND due_at <= ? ORDER BY due_at LIMIT ?`,
          consumer,
          now,
          free + taken.size,
        )
        .filter(({ seq }) => !taken.has(seq));
      for (const delivery of due.slice(0, free)) {
        taken.add(delivery.seq);
        const work: Promise<void> = deliver(delivery).finally(() => {
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
      "SELECT min(due_at) AS dueAt FROM deliveries WHERE consumer = ? AND parked_at IS NULL AND due_at > ?",
      consumer,
      now,
    )?.dueAt;
    const sleepMs = next ? Math.max(1, next - Date.now()) : longestSleepMs;
    timer = setTimeout(wake, Math.min(longestSleepMs, sleepMs));
    timer.unref();
  };
  const wake = () => {
    if (stopped || isScheduled) return;
    isScheduled = true;
    setImmediate(pump);
  };

  wake();
  return {
    wake,
    async stop() {
      stopped = true;
      clearTimeout(timer);
      await Promise.all(running);
    },
  };
}

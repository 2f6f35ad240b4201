import { setTimeout as delay } from "node:timers/promises";
import { fromBinary } from "@bufbuild/protobuf";
import { EventSchema } from "@sandgate/proto/common/v1/event";
import type { Logger } from "../base/logging.ts";
import { gauge, type Metrics } from "../base/metrics.ts";
import { startPeriodicTask } from "../base/periodic-task.ts";
import { openSqlite, type SqliteDatabase } from "../storage/sqlite.ts";
import { busMigrations, type transactions } from "./bus.local.transactions.ts";
import type { Consumption, DeadLetter, EventBus } from "./bus.ts";
import { type DeliveryPolicy, defaultDeliveryPolicy, delayAfter, outcomeOf } from "./delivery.ts";

const trimEveryMs = 10 * 60 * 1000;
const trimBatchSize = 200;
/** A timer's greatest reach; also how often a consumer looks without having been woken. */
const longestSleepMs = 60_000;

/**
 * Opens the event bus of a platform in one process. Messages, consumers and deliveries are in a SQLite file of its own, so
 * nothing is lost over a restart; signals stay in the process. Messages are kept 7 days and longer if a consumer isn't done.
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
  const parkedEvents = gauge(options.metrics, {
    name: "sandgate_bus_parked_events",
    help: "Events that a consumer failed to handle for good",
    labelNames: ["consumer"],
  });
  const countParked = () => {
    const sql = `SELECT name, (SELECT count(*) FROM deliveries WHERE consumer = name AND parked_at IS NOT NULL) AS parked
      FROM consumers`;
    for (const { name, parked } of read.all<{ name: string; parked: number }>(sql)) {
      parkedEvents.set({ consumer: name }, parked);
    }
  };
  countParked();

  const consumptions = new Set<LocalConsumption>();
  /** Per consumer, since consumptions of the same name share its events. */
  const inHand = new Map<string, Set<number>>();
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
      const taken = inHand.get(consumer) ?? new Set<number>();
      inHand.set(consumer, taken);
      const consumption = startConsumption({
        database,
        consumer,
        taken,
        policy,
        logger,
        onParked: countParked,
        handle: async (bytes) => handle(fromBinary(EventSchema, bytes)),
      });
      consumptions.add(consumption);
      return {
        async stop() {
          consumptions.delete(consumption);
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

    parked: async () =>
      read
        .all<{ consumer: string; bytes: Uint8Array; attempts: number; error: string; parkedAt: number }>(
          `SELECT consumer, bytes, attempts, error, parked_at AS parkedAt
           FROM deliveries JOIN messages USING (seq) WHERE parked_at IS NOT NULL ORDER BY parked_at, seq`,
        )
        .map(
          ({ bytes, parkedAt, ...rest }): DeadLetter => ({
            ...rest,
            event: fromBinary(EventSchema, bytes),
            parkedAt: new Date(parkedAt),
          }),
        ),

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
  /** Sequence numbers that a handler has, of every consumption of this consumer. */
  taken: Set<number>;
  policy: DeliveryPolicy;
  logger: Logger;
  onParked(): void;
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
      logger.warn({ err: failure, consumer, attempt, parked: isLast }, "handling an event failed");
      const next = isLast ? "park" : { dueAt: Date.now() + delayAfter(policy, attempt) };
      await write.fail(consumer, seq, failure.message, next);
      if (isLast) options.onParked();
    } catch (error) {
      logger.error({ err: error, consumer }, "the outcome of an event could not be stored, so it comes again");
      if (!stopped) await delay(policy.firstDelayMs);
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
      // One time for both reads, so that nothing falls due between them.
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
      logger.error({ err: error, consumer }, "a consumer could not read its events");
      timer = setTimeout(wake, policy.firstDelayMs);
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

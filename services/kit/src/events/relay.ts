import { randomUUID } from "node:crypto";
import { setTimeout as delay } from "node:timers/promises";
import { backoffMs } from "../base/backoff.ts";
import type { Logger } from "../base/logging.ts";
import { gauge, type Metrics } from "../base/metrics.ts";
import { createWakeup } from "../base/wakeup.ts";
import { type OutboxStore, refusedRetry, type StagedEvent, type WaitingEvent } from "../storage/outbox-store.ts";
import type { EventBus } from "./bus.ts";

export interface Relay {
  /** Finishes what is being published, and lets another replica take over. */
  stop(): Promise<void>;
}

/**
 * Another replica takes over from a dead relay within this time. A live relay renews its lease three times within it.
 */
const leaseMs = 15_000;
const renewMs = leaseMs / 3;
/** How many events are published, or marked unsent again, together. */
const batchSize = 128;
const retry = { firstMs: 200, lastMs: 5_000 };

/**
 * Publishes the unsent events of the outbox. Commits wake it. One replica at a time publishes, and only one that can
 * reach the bus. When the bus was recreated, the events that the outbox still keeps are published again. Failures are
 * retried with backoff.
 */
export function startRelay(options: { outbox: OutboxStore; bus: EventBus; logger: Logger; metrics: Metrics }): Relay {
  const { outbox, bus, logger, metrics } = options;
  const holder = randomUUID();
  const unsent = gauge(metrics, {
    name: "sandgate_outbox_unsent_events",
    help: "Events that wait in the outbox",
    labelNames: ["database"],
  });
  const refused = gauge(metrics, {
    name: "sandgate_outbox_refused_events",
    help: "Events that wait in the outbox because the bus has refused them",
    labelNames: ["database"],
  });
  const oldest = gauge(metrics, {
    name: "sandgate_outbox_oldest_unsent_seconds",
    help: "Age of the oldest event in the outbox that waits",
    labelNames: ["database"],
  });

  const stopping = new AbortController();
  const wakeup = createWakeup();
  const unwatch = outbox.onStaged(() => wakeup.wake());
  let leadsUntil = 0;
  /** When the next event that the bus refused is due again. */
  let dueAt = Number.POSITIVE_INFINITY;
  /** The bus to which no events have to be sent again, as of the last renewal. */
  let servedBus: string | undefined;

  const lead = async (): Promise<boolean> => {
    const now = performance.now();
    if (now < leadsUntil - leaseMs + renewMs) return true;
    // Throws when the bus is away, since a relay that can't publish must not keep others from it.
    if (leadsUntil === 0) await bus.identity();
    const leads = await outbox.lead(holder, leaseMs);
    leadsUntil = leads ? now + leaseMs : 0;
    // A relay that lost the lead may only now record what it sent to an earlier bus.
    servedBus = undefined;
    return leads;
  };
  /** Lets another replica publish, which may reach the bus although this one can't. */
  const resign = async (): Promise<void> => {
    if (leadsUntil === 0) return;
    leadsUntil = 0;
    await outbox
      .resign(holder)
      .catch((error: unknown) => logger.warn({ err: error }, "a relay failed to give up its lease, which will expire"));
  };
  const resendTo = async (identity: string): Promise<void> => {
    if (identity === servedBus) return;
    let again = 0;
    let count: number;
    do {
      count = await outbox.resend(identity, batchSize);
      again += count;
    } while (count === batchSize);
    servedBus = identity;
    if (again > 0)
      logger.warn({ events: again, bus: identity }, "publishing events again that only an earlier event bus received");
  };
  const measure = async (): Promise<void> => {
    const backlog = await outbox.backlog();
    const database = outbox.name;
    unsent.set({ database }, backlog.unsent);
    refused.set({ database }, backlog.refused);
    oldest.set({ database }, backlog.oldestStagedAt ? (Date.now() - backlog.oldestStagedAt.getTime()) / 1000 : 0);
  };
  const publishAll = async (): Promise<void> => {
    if (dueAt <= Date.now()) dueAt = Number.POSITIVE_INFINITY;
    while (!stopping.signal.aborted && (await lead())) {
      const identity = await bus.identity();
      await resendTo(identity);
      const events = await outbox.unsent(batchSize);
      if (events.length === 0) return;
      await publish(events, identity);
    }
  };
  /** Postpones an event that the bus refuses by a growing delay, so that it holds up no other. */
  const publish = async (events: readonly WaitingEvent[], identity: string): Promise<void> => {
    if (await publishTogether(events, identity)) return;
    const outcomes = await Promise.allSettled(events.map((event) => bus.publish([event])));
    await outbox.markSent(idsOf(events.filter((_, index) => outcomes[index]?.status === "fulfilled")), identity);
    const rejected = events.filter((_, index) => outcomes[index]?.status === "rejected");
    const isAllRefused = rejected.length === events.length;
    // Throws when the bus is away, since it has refused nothing then.
    if (isAllRefused) await bus.identity();
    const postponed = rejected.map(({ id, refusals }) => {
      const until = new Date(Date.now() + backoffMs(refusals + 1, refusedRetry));
      return { id, until };
    });
    dueAt = Math.min(dueAt, ...postponed.map(({ until }) => until.getTime()));
    await outbox.postpone(postponed);
    const failed = outcomes.find((outcome) => outcome.status === "rejected");
    if (!failed) return;
    // The bus itself may have failed, so the next batch waits.
    if (isAllRefused) throw failed.reason;
    logger.warn({ err: failed.reason, events: rejected.length }, "the bus refuses events; will retry");
  };
  const publishTogether = async (events: readonly WaitingEvent[], identity: string): Promise<boolean> => {
    try {
      await bus.publish(events);
    } catch {
      // Next, each event is published alone and fails for its own reason.
      return false;
    }
    await outbox.markSent(idsOf(events), identity);
    return true;
  };

  const running = (async () => {
    let failures = 0;
    while (!stopping.signal.aborted) {
      try {
        await publishAll();
        failures = 0;
      } catch (error) {
        failures++;
        logger.warn({ err: error, failures }, "failed to publish events; will retry");
        await resign();
      }
      await measure().catch((error: unknown) => logger.warn({ err: error }, "failed to measure the outbox"));
      if (failures === 0) {
        const untilDueMs = Math.max(0, dueAt - Date.now());
        await wakeup.wait(Math.min(renewMs, untilDueMs), stopping.signal);
      } else {
        await delay(backoffMs(failures, retry), undefined, { signal: stopping.signal, ref: false }).catch(
          () => undefined,
        );
      }
    }
    await resign();
  })();

  return {
    async stop() {
      unwatch();
      stopping.abort();
      await running;
    },
  };
}

function idsOf(events: readonly StagedEvent[]): string[] {
  return events.map(({ id }) => id);
}

import { randomUUID } from "node:crypto";
import type { Logger } from "../base/logging.ts";
import { startPeriodicTask } from "../base/periodic-task.ts";
import { monotonicMs } from "../base/time.ts";
import { createWakeup } from "../base/wakeup.ts";
import type { EventBus } from "../events/bus.ts";
import type { LeaseStore } from "../storage/leases.ts";
import type { DatabaseTarget, ServiceStore } from "../storage/open-store.ts";

/**
 * Says on which things, by their ids, this process works. Ownership only divides the work; compare-and-set makes it
 * correct.
 */
export interface Shards {
  owns(id: string): boolean;
  /** Calls the listener after this process has gained or lost shards. */
  onChange(listener: () => void): void;
  /** From the call on, this process owns nothing. Releases all shards to the other replicas. */
  stop(): Promise<void>;
}

const shardCount = 64;
/** How often one division looks for free shards, since another replica may take the chosen ones. */
const rounds = 3;

/** Milliseconds. */
export interface ShardTimes {
  /**
   * How long a lease lasts without renewal. The shards of a dead replica are taken over within this time and one
   * renewal.
   */
  lease: number;
  renew: number;
  /**
   * A replica that hasn't announced itself for this long doesn't count. Each replica announces itself at every renewal.
   */
  presence: number;
}

type Signals = Pick<EventBus, "signal" | "watch">;

const defaultTimes: ShardTimes = { lease: 6_000, renew: 2_000, presence: 5_000 };

/** The shards of a process that has its database to itself: all of them. */
export const allShards: Shards = {
  owns: () => true,
  onChange: () => {},
  stop: async () => {},
};

/** Divides a service's work among its replicas. A process that has its database to itself owns all shards. */
export function openShards(o: {
  service: string;
  database: DatabaseTarget;
  store: Pick<ServiceStore, "leases">;
  bus: Signals;
  logger: Logger;
}): Shards {
  const { service, database, store, bus, logger } = o;
  if (database.kind === "sqlite") return allShards;
  return startShards({ service, leases: store.leases, bus, holder: randomUUID(), logger });
}

/** Returns the shard of an id, from the random end of the UUIDv7. */
function shardOf(id: string): number {
  return Number.parseInt(id.slice(-4), 16) % shardCount;
}

/** Divides the 64 shards evenly among the replicas that announce themselves, with leases in their common database. */
export function startShards(o: {
  service: string;
  leases: LeaseStore;
  bus: Signals;
  /** A name that no other process has. */
  holder: string;
  logger: Logger;
  times?: ShardTimes;
}): Shards {
  const { service, leases, bus, holder, times = defaultTimes } = o;
  const names = Array.from({ length: shardCount }, (_, shard) => `${service}.shard.${shard}`);
  const presenceTopic = `${service}.replicas`;
  const goodbyeTopic = `${service}.replicas.gone`;
  const freeTopic = `${service}.shards.free`;
  const lastSeen = new Map<string, number>();
  const listeners: (() => void)[] = [];
  const wakeup = createWakeup();
  /** The leases that this process holds, and until when, by a clock that nobody sets. */
  let held = new Map<string, number>();

  const unwatch = [
    bus.watch(presenceTopic, (replica) => {
      const isNew = replica !== holder && !lastSeen.has(replica);
      lastSeen.set(replica, monotonicMs());
      if (isNew) wakeup.wake();
    }),
    bus.watch(goodbyeTopic, (replica) => {
      lastSeen.delete(replica);
      wakeup.wake();
    }),
    bus.watch(freeTopic, (replica) => {
      if (replica !== holder && held.size < fairShare()) wakeup.wake();
    }),
  ];

  function fairShare(): number {
    for (const [replica, at] of lastSeen) if (monotonicMs() - at > times.presence) lastSeen.delete(replica);
    const replicas = lastSeen.has(holder) ? lastSeen.size : lastSeen.size + 1;
    return Math.ceil(shardCount / replicas);
  }

  function hold(now: Map<string, number>): void {
    const before = held;
    held = now;
    if (now.size === before.size && [...now.keys()].every((name) => before.has(name))) return;
    for (const listener of listeners) listener();
  }

  /** Chooses free shards in random order, so that replicas that look at the same time choose different ones. */
  async function chooseFree(count: number): Promise<string[]> {
    const free = await leases.listFree(names.filter((name) => !held.has(name)));
    return free
      .map((name) => ({ name, at: Math.random() }))
      .sort((a, b) => a.at - b.at)
      .slice(0, count)
      .map(({ name }) => name);
  }

  async function divide(signal: AbortSignal): Promise<void> {
    bus.signal(presenceTopic, holder);
    const fair = fairShare();
    const surplus = [...held.keys()].slice(fair);
    if (surplus.length > 0) {
      // This process stops work on these before another may start it.
      hold(new Map([...held].slice(0, fair)));
      await leases.release(surplus, holder);
      bus.signal(freeTopic, holder);
    }
    for (let round = 1; round <= rounds && !signal.aborted; round++) {
      const lacking = fairShare() - held.size;
      const chosen = lacking > 0 ? await chooseFree(lacking) : [];
      if (signal.aborted || (round > 1 && chosen.length === 0)) return;
      // The same call renews what is held. With more statements, leases could expire during a division.
      const until = monotonicMs() + times.lease;
      const now = await leases.acquire([...held.keys(), ...chosen], holder, times.lease);
      if (signal.aborted) return;
      hold(new Map(now.map((name) => [name, until])));
    }
  }

  async function releaseAll(): Promise<void> {
    await leases
      .release(names, holder)
      .catch((error: unknown) => o.logger.warn({ err: error }, "shards were not released; their leases will expire"));
  }

  const dividing = startPeriodicTask({
    what: "divide the work among replicas",
    everyMs: times.renew,
    logger: o.logger,
    async work(signal, markHealthy) {
      while (!signal.aborted) {
        const startedAt = monotonicMs();
        await divide(signal);
        markHealthy();
        await wakeup.wait(Math.max(0, startedAt + times.renew - monotonicMs()), signal);
      }
    },
  });

  return {
    owns(id) {
      const until = held.get(names[shardOf(id)] ?? "");
      return until !== undefined && until > monotonicMs();
    },
    onChange: (listener) => {
      listeners.push(listener);
    },
    async stop() {
      for (const stop of unwatch) stop();
      held = new Map();
      const divided = dividing.stop();
      await releaseAll();
      bus.signal(goodbyeTopic, holder);
      await divided;
      // A division under way may have renewed some after that.
      await releaseAll();
      bus.signal(freeTopic, holder);
    },
  };
}

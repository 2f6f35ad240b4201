import { randomUUID } from "node:crypto";
import type { Logger } from "../base/logging.ts";
import { startPeriodicTask } from "../base/periodic-task.ts";
import type { EventBus } from "../events/bus.ts";
import type { LeaseStore } from "../storage/leases.ts";
import type { DatabaseTarget, ServiceStore } from "../storage/open-store.ts";

/** Which things, by their ids, this process works on. Ownership only divides the work; compare-and-set makes it correct. */
export interface Shards {
  owns(id: string): boolean;
  /** Calls the listener after this process gained or lost shards. */
  onChange(listener: () => void): void;
  /** Releases all shards to the other replicas. */
  stop(): Promise<void>;
}

const shardCount = 64;

/** Milliseconds. */
export interface ShardTimes {
  /** How long a lease lasts without renewal. A dead replica's shards are taken over within this time and one renewal. */
  lease: number;
  renew: number;
  /** A replica that hasn't announced itself for this long doesn't count; each does so at every renewal. */
  presence: number;
}

type Signals = Pick<EventBus, "signal" | "watch">;

const defaultTimes: ShardTimes = { lease: 6_000, renew: 2_000, presence: 5_000 };

/** For a process that has its database to itself. */
export const allShards: Shards = {
  owns: () => true,
  onChange: () => {},
  stop: async () => {},
};

/** Divides a service's work among its replicas; a process that has its database to itself owns them all. */
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

/** The shard of an id, from the random end of a UUIDv7. */
function shardOf(id: string): number {
  return Number.parseInt(id.slice(-4), 16) % shardCount;
}

/** Divides the 64 shards evenly among the replicas that announce themselves, by leases in their common database. */
export function startShards(o: {
  service: string;
  leases: LeaseStore;
  bus: Signals;
  /** A name for this process that no other has. */
  holder: string;
  logger: Logger;
  times?: ShardTimes;
}): Shards {
  const { service, leases, bus, holder, times = defaultTimes } = o;
  const names = Array.from({ length: shardCount }, (_, shard) => `${service}.shard.${shard}`);
  const presenceTopic = `${service}.replicas`;
  const goodbyeTopic = `${service}.replicas.gone`;
  const lastSeen = new Map<string, number>();
  const listeners: (() => void)[] = [];
  /** The leases that this process holds, and until when by its own clock. */
  let held = new Map<string, number>();

  const unwatch = [
    bus.watch(presenceTopic, (replica) => lastSeen.set(replica, Date.now())),
    bus.watch(goodbyeTopic, (replica) => lastSeen.delete(replica)),
  ];

  function countReplicas(): number {
    for (const [replica, at] of lastSeen) if (Date.now() - at > times.presence) lastSeen.delete(replica);
    return lastSeen.has(holder) ? lastSeen.size : lastSeen.size + 1;
  }

  /** Takes or renews these; returns those that this process holds now. */
  async function acquire(wanted: readonly string[]): Promise<Map<string, number>> {
    const until = Date.now() + times.lease;
    return new Map((await leases.acquire(wanted, holder, times.lease)).map((name) => [name, until]));
  }

  async function divide(): Promise<void> {
    bus.signal(presenceTopic, holder);
    const before = held;
    const fair = Math.ceil(shardCount / countReplicas());
    const surplus = [...held.keys()].slice(fair);
    if (surplus.length > 0) {
      // This process stops work on them before another may start it.
      held = new Map([...held].slice(0, fair));
      for (const listener of listeners) listener();
      await leases.release(surplus, holder);
    }
    const now = await acquire([...held.keys()]);
    // In random order, so that replicas that start together don't ask for the same ones.
    const others = names
      .filter((name) => !now.has(name))
      .map((name) => ({ name, at: Math.random() }))
      .sort((a, b) => a.at - b.at)
      .map(({ name }) => name);
    while (now.size < fair && others.length > 0) {
      for (const [name, until] of await acquire(others.splice(0, fair - now.size))) now.set(name, until);
    }
    held = now;
    if (now.size !== before.size || [...now.keys()].some((name) => !before.has(name))) {
      for (const listener of listeners) listener();
    }
  }

  const dividing = startPeriodicTask({
    what: "divide the work among replicas",
    everyMs: times.renew,
    logger: o.logger,
    work: divide,
  });

  return {
    owns(id) {
      const until = held.get(names[shardOf(id)] ?? "");
      return until !== undefined && until > Date.now();
    },
    onChange: (listener) => {
      listeners.push(listener);
    },
    async stop() {
      for (const stop of unwatch) stop();
      await dividing.stop();
      const names = [...held.keys()];
      held = new Map();
      await leases.release(names, holder);
      bus.signal(goodbyeTopic, holder);
    },
  };
}

import type { EventBus } from "@sandgate/kit/bus";
import type { LeaseStore } from "@sandgate/kit/leases";
import type { Logger } from "@sandgate/kit/logging";
import { repeat } from "@sandgate/kit/repeat";

/** Which sandboxes this process works on. Ownership only divides work; compare-and-set makes it correct. */
export interface Shards {
  owns(sandboxId: string): boolean;
  /** Calls the listener after this process has gained shards. */
  onGained(listener: () => void): void;
  stop(): Promise<void>;
}

/** For a process that has its database to itself. */
export const allShards: Shards = {
  owns: () => true,
  onGained: () => {},
  stop: async () => {},
};

const shardCount = 64;
const names = Array.from({ length: shardCount }, (_, shard) => `sandbox.shard.${shard}`);

/** Milliseconds. */
export interface ShardTimes {
  /** How long a lease is ours without renewal. A dead replica's shards are taken within this and another renewal. */
  lease: number;
  renew: number;
  /** A replica not heard of for this long is not counted; each says every renewal that it lives. */
  presence: number;
}

const defaultTimes: ShardTimes = { lease: 6_000, renew: 2_000, presence: 5_000 };
const presenceTopic = "sandbox.replicas";

/** The shard of an id, from the random end of a UUIDv7. */
function shardOf(sandboxId: string): number {
  return Number.parseInt(sandboxId.slice(-4), 16) % shardCount;
}

/** Shares the 64 shards evenly among the replicas that can be heard, by leases in their common database. */
export function startShards(o: {
  leases: LeaseStore;
  bus: Pick<EventBus, "signal" | "watch">;
  /** This process, unlike every other. */
  holder: string;
  logger: Logger;
  times?: ShardTimes;
}): Shards {
  const { leases, bus, holder, times = defaultTimes } = o;
  const heard = new Map<string, number>();
  const listeners: (() => void)[] = [];
  /** Lease names, and until when they are ours by this process's clock. */
  let held = new Map<string, number>();

  const unwatch = bus.watch(presenceTopic, (_topic, replica) => heard.set(replica, Date.now()));

  function countReplicas(): number {
    for (const [replica, at] of heard) if (Date.now() - at > times.presence) heard.delete(replica);
    return heard.has(holder) ? heard.size : heard.size + 1;
  }

  /** Takes or renews these, and answers which are ours now. */
  async function acquire(wanted: readonly string[]): Promise<Map<string, number>> {
    const until = Date.now() + times.lease;
    return new Map((await leases.acquire(wanted, holder, times.lease)).map(({ name }) => [name, until]));
  }

  async function share(): Promise<void> {
    bus.signal(presenceTopic, holder);
    const fair = Math.ceil(shardCount / countReplicas());
    const keep = [...held.keys()].slice(0, fair);
    const surplus = [...held.keys()].slice(fair);
    if (surplus.length > 0) await leases.release(surplus, holder);
    const now = await acquire(keep);
    // The others in an order of our own, so that replicas that start together don't ask for the same ones.
    const others = names
      .filter((name) => !now.has(name))
      .map((name) => ({ name, at: Math.random() }))
      .sort((a, b) => a.at - b.at)
      .map(({ name }) => name);
    while (now.size < fair && others.length > 0) {
      for (const [name, until] of await acquire(others.splice(0, fair - now.size))) now.set(name, until);
    }
    const gained = [...now.keys()].some((name) => !held.has(name));
    held = now;
    if (gained) for (const listener of listeners) listener();
  }

  const sharing = repeat({ what: "share the work on sandboxes", everyMs: times.renew, logger: o.logger, work: share });

  return {
    owns(sandboxId) {
      const until = held.get(names[shardOf(sandboxId)] ?? "");
      return until !== undefined && until > Date.now();
    },
    onGained: (listener) => {
      listeners.push(listener);
    },
    async stop() {
      unwatch();
      await sharing.stop();
      await leases.release([...held.keys()], holder);
      held = new Map();
    },
  };
}

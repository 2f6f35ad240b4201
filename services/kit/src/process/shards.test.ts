import { until } from "@sandgate/test-support/until";
import { afterEach, beforeEach, describe, expect, test, vi } from "vitest";
import { newId } from "../base/ids.ts";
import { createLogger } from "../base/logging.ts";
import type { LeaseStore } from "../storage/leases.ts";
import { openShards, type Shards, type ShardTimes, startShards } from "./shards.ts";

const logger = createLogger({ service: "test", level: "silent" });
const ids = Array.from({ length: 500 }, () => newId());

/**
 * Leases by the test's clock; the stores' own are proven by their contract. A statement takes so long, and like on
 * MongoDB the leases are acquired by two: one that writes and one that reads.
 */
function createLeases(statementMs = 0): LeaseStore {
  const rows = new Map<string, { holder: string; until: number }>();
  const runStatement = async () => {
    if (statementMs > 0) await delay(statementMs);
  };
  const isHeld = (name: string) => (rows.get(name)?.until ?? 0) > Date.now();
  return {
    async listFree(names) {
      await runStatement();
      return names.filter((name) => !isHeld(name));
    },
    async acquire(names, holder, ttlMs) {
      await runStatement();
      for (const name of names) {
        if (!isHeld(name) || rows.get(name)?.holder === holder) rows.set(name, { holder, until: Date.now() + ttlMs });
      }
      await runStatement();
      return names.filter((name) => isHeld(name) && rows.get(name)?.holder === holder);
    },
    async release(names, holder) {
      await runStatement();
      for (const name of names) if (rows.get(name)?.holder === holder) rows.delete(name);
    },
  };
}

function createSignals() {
  const watches = new Set<{ topic: string; listener: (body: string) => void }>();
  return {
    signal: (topic: string, body = "") => {
      for (const watch of watches) if (watch.topic === topic) watch.listener(body);
    },
    watch: (topic: string, listener: (body: string) => void) => {
      const watch = { topic, listener };
      watches.add(watch);
      return () => void watches.delete(watch);
    },
  };
}

let open: Shards[] = [];
// `until` lets time pass, so that a machine that stands still costs no replica its leases.
beforeEach(() => {
  vi.useFakeTimers();
});
afterEach(async () => {
  const stopped = Promise.all(open.map((shards) => shards.stop()));
  await vi.advanceTimersByTimeAsync(5_000);
  await stopped;
  vi.useRealTimers();
  open = [];
});

const times = { lease: 1_500, renew: 50, presence: 700 };

function start(o: {
  leases: LeaseStore;
  bus: ReturnType<typeof createSignals>;
  holder: string;
  times?: ShardTimes;
}): Shards {
  const shards = startShards({ ...o, service: "test", logger, times: o.times ?? times });
  open.push(shards);
  return shards;
}

const ownersOf = (id: string, replicas: readonly Shards[]) => replicas.filter((shards) => shards.owns(id)).length;

test("one replica has them all, three share them, and nothing has two owners", async () => {
  const shared = { leases: createLeases(), bus: createSignals() };
  const first = start({ ...shared, holder: "a" });
  await until(() => expect(ids.every((id) => first.owns(id))).toBe(true));
  const replicas = [first, start({ ...shared, holder: "b" }), start({ ...shared, holder: "c" })];
  await until(() => {
    expect(ids.every((id) => ownersOf(id, replicas) <= 1)).toBe(true);
    for (const replica of replicas) {
      const share = ids.filter((id) => replica.owns(id)).length / ids.length;
      expect(share).toBeGreaterThan(0.15);
      expect(share).toBeLessThan(0.55);
    }
    expect(ids.every((id) => ownersOf(id, replicas) === 1)).toBe(true);
  });
});

test("gains and losses are reported, a loss while nobody else has the shards yet", async () => {
  const shared = { leases: createLeases(), bus: createSignals() };
  const first = start({ ...shared, holder: "a" });
  await until(() => expect(ids.every((id) => first.owns(id))).toBe(true));
  const second = start({ ...shared, holder: "b" });
  const gained = vi.fn();
  second.onChange(gained);
  const lost = vi.fn(() => [first, second].map((replica) => ids.filter((id) => replica.owns(id)).length));
  first.onChange(lost);
  await until(() => expect(gained).toHaveBeenCalled());
  const [left, taken] = lost.mock.results[0]?.value ?? [];
  expect(left).toBeLessThan(ids.length);
  expect(taken).toBe(0);
});

test("a replica that stops hands over at once, however long it would have been counted", async () => {
  const shared = { leases: createLeases(), bus: createSignals(), times: { ...times, presence: 3_600_000 } };
  const [first, second] = [start({ ...shared, holder: "a" }), start({ ...shared, holder: "b" })];
  await until(() => expect(ids.some((id) => second.owns(id)) && ids.some((id) => first.owns(id))).toBe(true));
  await first.stop();
  await until(() => expect(ids.every((id) => second.owns(id))).toBe(true));
});

test("a process with a database of its own has them all from the beginning", () => {
  const database = { kind: "sqlite", file: "unused" } as const;
  const shards = openShards({
    service: "sandbox",
    database,
    store: { leases: createLeases() },
    bus: createSignals(),
    logger,
  });
  expect(ids.every((id) => shards.owns(id))).toBe(true);
});

test("when the clock is set back, a replica that can't renew owns nothing in time, and a dead one counts no longer", async () => {
  const leases = createLeases();
  const shared = { leases, bus: createSignals() };
  const [first] = [start({ ...shared, holder: "a" }), shared.bus.signal("test.replicas", "dead")];
  await until(() => expect(ids.some((id) => first.owns(id))).toBe(true));
  expect(ids.every((id) => first.owns(id))).toBe(false);
  vi.setSystemTime(Date.now() - 120_000);
  await until(() => expect(ids.every((id) => first.owns(id))).toBe(true));
  leases.acquire = async () => {
    throw new Error("the database is away");
  };
  vi.setSystemTime(Date.now() - 120_000);
  await vi.advanceTimersByTimeAsync(times.lease);
  expect(ids.some((id) => first.owns(id))).toBe(false);
});

test("a replica that can't renew owns nothing once its leases are over", async () => {
  const leases = createLeases();
  const shards = start({ leases, bus: createSignals(), holder: "a" });
  await until(() => expect(ids.every((id) => shards.owns(id))).toBe(true));
  leases.acquire = async () => {
    throw new Error("the database is down");
  };
  await until(() => expect(ids.some((id) => shards.owns(id))).toBe(false));
});

test("a replica whose leases can't be released stops all the same, and tells the others", async () => {
  const leases = createLeases();
  const shared = { leases, bus: createSignals() };
  const shards = start({ ...shared, holder: "a" });
  await until(() => expect(ids.every((id) => shards.owns(id))).toBe(true));
  leases.release = async () => {
    throw new Error("the database has no primary");
  };
  const gone = vi.fn();
  shared.bus.watch("test.replicas.gone", gone);
  const stopped = shards.stop();
  await vi.advanceTimersByTimeAsync(100);
  await stopped;
  expect(gone).toHaveBeenCalledExactlyOnceWith("a");
});

/** An id of each shard. */
const idOfEach = Array.from({ length: 64 }, (_, shard) => `0000${shard.toString(16).padStart(4, "0")}`);
const realTimes = { lease: 6_000, renew: 2_000, presence: 5_000 };
const delay = (ms: number) => new Promise((resolve) => setTimeout(resolve, ms));

/** Which share of shards and time had no owner, looked at every 20 ms. */
async function measureUnowned(replicas: readonly Shards[], forMs: number): Promise<number> {
  let unowned = 0;
  for (let ms = 0; ms < forMs; ms += 20) {
    await vi.advanceTimersByTimeAsync(20);
    unowned += idOfEach.filter((id) => ownersOf(id, replicas) === 0).length;
  }
  return unowned / ((forMs / 20) * idOfEach.length);
}

describe.each([3, 7])("%i replicas on a database that takes 60 ms a statement", (count) => {
  let replicas: Shards[];
  let shared: { leases: LeaseStore; bus: ReturnType<typeof createSignals>; times: ShardTimes };
  beforeEach(async () => {
    shared = { leases: createLeases(60), bus: createSignals(), times: realTimes };
    replicas = [];
    for (let replica = 0; replica < count; replica++) {
      replicas.push(start({ ...shared, holder: `replica ${replica}` }));
      await vi.advanceTimersByTimeAsync(300);
    }
    await vi.advanceTimersByTimeAsync(15_000);
  });

  test("leave no shard without an owner", async () => {
    expect(await measureUnowned(replicas, 60_000)).toBe(0);
  });

  test("take over what one that stops gives away, within a second", async () => {
    const [leaving, ...others] = replicas;
    const stopped = leaving?.stop();
    await vi.advanceTimersByTimeAsync(1_000);
    await stopped;
    expect(idOfEach.filter((id) => ownersOf(id, others) === 0)).toEqual([]);
  });

  test("hand a newcomer its share, which lacks an owner for less than half a second", async () => {
    const share = Math.floor(idOfEach.length / (count + 1));
    const all = [...replicas, start({ ...shared, holder: "newcomer" })];
    // Of all shards and of three seconds.
    expect(await measureUnowned(all, 3_000)).toBeLessThan((share / 64) * (0.5 / 3));
    await vi.advanceTimersByTimeAsync(3_000);
    expect(idOfEach.filter((id) => all.at(-1)?.owns(id)).length).toBeGreaterThanOrEqual(share - 5);
  });
});

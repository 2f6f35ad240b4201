import { until } from "@sandgate/test-support/until";
import { afterEach, expect, test, vi } from "vitest";
import { newId } from "../base/ids.ts";
import { createLogger } from "../base/logging.ts";
import type { LeaseStore } from "../storage/leases.ts";
import { openShards, type Shards, type ShardTimes, startShards } from "./shards.ts";

const logger = createLogger({ service: "test", level: "silent" });
const ids = Array.from({ length: 500 }, () => newId());

/** Leases by the test's clock; the stores' own are proven by their contract. */
function createLeases(): LeaseStore {
  const rows = new Map<string, { holder: string; until: number }>();
  return {
    async acquire(names, holder, ttlMs) {
      const now = Date.now();
      return names.filter((name) => {
        const row = rows.get(name);
        if (row && row.holder !== holder && row.until > now) return false;
        rows.set(name, { holder, until: now + ttlMs });
        return true;
      });
    },
    async release(names, holder) {
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
afterEach(async () => {
  await Promise.all(open.map((shards) => shards.stop()));
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

test("gains and losses are told, a loss while nobody else has the shards yet", async () => {
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

test("a replica that can't renew owns nothing once its leases are over", async () => {
  const leases = createLeases();
  const shards = start({ leases, bus: createSignals(), holder: "a" });
  await until(() => expect(ids.every((id) => shards.owns(id))).toBe(true));
  leases.acquire = async () => {
    throw new Error("the database is down");
  };
  await until(() => expect(ids.some((id) => shards.owns(id))).toBe(false));
});

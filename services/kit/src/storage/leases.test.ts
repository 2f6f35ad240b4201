import { once } from "node:events";
import { DatabaseSync } from "node:sqlite";
import { pino } from "pino";
import { afterEach, beforeEach, describe, expect, test, vi } from "vitest";
import { type LeaseStore, runLeased } from "./leases.ts";
import { createConnection } from "./sqlite-connection.ts";
import { createTransaction, kitMigrations, kitTransactions } from "./sqlite-kit.ts";
import type { Transaction } from "./transaction.ts";

const logger = pino({ enabled: false });
let db: DatabaseSync;
let tx: Transaction;

beforeEach(() => {
  vi.useFakeTimers({ toFake: ["Date"], now: 1_000_000 });
  db = new DatabaseSync(":memory:");
  for (const sql of kitMigrations) db.exec(sql);
  tx = createTransaction(createConnection(db), () => undefined);
});
afterEach(() => {
  vi.useRealTimers();
  db.close();
});

const acquire = (holder: string, names = ["shard"]) => kitTransactions.acquireLeases(tx, names, holder, 10_000);

test("a lease has one holder, who renews it", () => {
  expect(acquire("a")).toEqual(["shard"]);
  expect(acquire("b")).toEqual([]);
  vi.setSystemTime(1_005_000);
  expect(acquire("a")).toEqual(["shard"]);
  vi.setSystemTime(1_014_999);
  expect(acquire("b")).toEqual([]);
});

test("an expired lease goes to who asks first", () => {
  acquire("a");
  vi.setSystemTime(1_010_000);
  expect(acquire("b")).toEqual(["shard"]);
  expect(acquire("a")).toEqual([]);
});

test("of several, those that are free are taken; only the holder releases", () => {
  acquire("a", ["one"]);
  expect(acquire("b", ["one", "two"])).toEqual(["two"]);
  kitTransactions.releaseLeases(tx, ["one", "two"], "b");
  expect(acquire("c", ["one", "two"])).toEqual(["two"]);
});

describe("work that needs a lease", () => {
  const leases: LeaseStore = {
    acquire: async (names, holder, ttlMs) => kitTransactions.acquireLeases(tx, names, holder, ttlMs),
    listFree: async (names) => [...names],
    release: async (names, holder) => kitTransactions.releaseLeases(tx, names, holder),
  };
  const run = (holder: string, work: (signal: AbortSignal) => Promise<void>, store = leases) =>
    runLeased({ leases: store, name: "work", holder, ttlMs, signal: new AbortController().signal, logger }, work);
  const ttlMs = 90;
  const isFree = async () => (await leases.acquire(["work"], "other", 0)).length > 0;

  // The clocks go on as a test says; renewals come after a third of the lease in real time.
  beforeEach(() => {
    vi.useFakeTimers({ toFake: ["Date", "performance"] });
  });

  test("keeps others out for as long as it takes, and lets them in when it has ended or failed", async () => {
    let others = 0;
    let renewals = -1;
    const acquire: LeaseStore["acquire"] = (...given) => {
      renewals += 1;
      return leases.acquire(...given);
    };
    const work = async (signal: AbortSignal) => {
      for (let round = 1; round <= 5; round++) {
        await vi.waitFor(() => expect(renewals).toBeGreaterThanOrEqual(round), { timeout: 60_000, interval: 1 });
        vi.advanceTimersByTime(ttlMs / 2);
        if (await run("b", async () => {})) others += 1;
      }
      expect(signal.aborted).toBe(false);
    };
    const ran = await run("a", work, { ...leases, acquire });
    expect({ ran, others }).toEqual({ ran: true, others: 0 });
    expect(await isFree()).toBe(true);
    await expect(run("a", () => Promise.reject(new Error("a fault")))).rejects.toThrow("a fault");
    expect(await isFree()).toBe(true);
  });

  test.each<[string, LeaseStore["acquire"]]>([
    ["another has taken it", async () => []],
    ["it can't be renewed before it expires", () => Promise.reject(new Error("the database is away"))],
  ])("is told to end when %s", async (_, renew) => {
    let asked = 0;
    const acquire: LeaseStore["acquire"] = (...given) => {
      asked += 1;
      if (asked === 1) return leases.acquire(...given);
      vi.advanceTimersByTime(ttlMs / 2);
      return renew(...given);
    };
    const ended = run("a", (signal) => once(signal, "abort").then(() => {}), { ...leases, acquire });
    expect(await ended).toBe(true);
  });

  test.each([
    ["a renewal waits for the database", 0],
    ["it was long in coming", ttlMs],
  ])("is told to end when its lease is over, also when %s", async (_, firstMs) => {
    const renewal = Promise.withResolvers<string[]>();
    let renewals = -1;
    const acquire: LeaseStore["acquire"] = async (...given) => {
      renewals += 1;
      if (renewals > 0) return renewal.promise;
      const held = await leases.acquire(...given);
      vi.advanceTimersByTime(firstMs);
      return held;
    };
    const ended = run(
      "a",
      async (signal) => {
        await once(signal, "abort");
        expect(renewals).toBe(firstMs === 0 ? 1 : 0);
        renewal.resolve([]);
      },
      { ...leases, acquire },
    );
    expect(await ended).toBe(true);
  });
});

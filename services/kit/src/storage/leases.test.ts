import { DatabaseSync } from "node:sqlite";
import { afterEach, beforeEach, expect, test, vi } from "vitest";
import { createConnection } from "./sqlite-connection.ts";
import { createTransaction, kitMigrations, kitTransactions } from "./sqlite-kit.ts";
import type { Transaction } from "./transaction.ts";

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

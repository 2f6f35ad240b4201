import { once } from "node:events";
import { createServer } from "node:net";
import { join } from "node:path";
import { DatabaseSync } from "node:sqlite";
import { createClient } from "@connectrpc/connect";
import { createConnectTransport } from "@connectrpc/connect-node";
import { Health } from "@sandgate/proto/grpc/health/v1/health";
import { findFreePort } from "@sandgate/test-support/process";
import { test } from "@sandgate/test-support/test";
import { MongoClient, MongoServerError } from "mongodb";
import { expect } from "vitest";
import { DomainError } from "../base/domain-error.ts";
import { isDependencyAway } from "./dependency-away.ts";

const failureOf = (promise: Promise<unknown>) =>
  promise.then(
    () => undefined,
    (error: unknown) => error,
  );

test("a database, a service or a network that can't be reached is a dependency that is away", async () => {
  const port = await findFreePort();
  const mongo = new MongoClient(`mongodb://127.0.0.1:${port}`, { serverSelectionTimeoutMS: 50 });
  expect(isDependencyAway(await failureOf(mongo.db("any").command({ ping: 1 })))).toBe(true);
  await mongo.close();
  expect(isDependencyAway(await failureOf(fetch(`http://127.0.0.1:${port}`)))).toBe(true);

  const health = (timeoutMs: number, to = port) =>
    createClient(Health, createConnectTransport({ baseUrl: `http://127.0.0.1:${to}`, httpVersion: "2" })).list(
      {},
      { timeoutMs },
    );
  expect(isDependencyAway(await failureOf(health(5_000)))).toBe(true);
  const silent = createServer().listen(0, "127.0.0.1");
  await once(silent, "listening");
  const address = silent.address();
  expect(isDependencyAway(await failureOf(health(50, typeof address === "object" ? address?.port : 0)))).toBe(true);
  silent.close();
  expect(isDependencyAway(new DomainError("UPSTREAM_ERROR", "no answer"))).toBe(true);
  expect(isDependencyAway(new Error("a handler's own", { cause: new DomainError("STORAGE_FULL", "full") }))).toBe(true);
});

test("a SQLite file that is locked, full or read-only is a dependency that is away; its refusals are not", ({
  folder,
}) => {
  const file = join(folder, "any.sqlite");
  const db = new DatabaseSync(file);
  db.exec("CREATE TABLE rows (id TEXT PRIMARY KEY); INSERT INTO rows VALUES ('a')");
  const failureOn = (sql: string, on = db) => {
    try {
      on.exec(sql);
    } catch (error) {
      return error;
    }
  };
  expect(isDependencyAway(failureOn("INSERT INTO rows VALUES ('a')"))).toBe(false);
  const other = new DatabaseSync(file, { timeout: 0 });
  db.exec("BEGIN IMMEDIATE");
  expect(isDependencyAway(failureOn("BEGIN IMMEDIATE", other))).toBe(true);
  other.close();
  db.exec("ROLLBACK; PRAGMA max_page_count = 1");
  expect(isDependencyAway(failureOn("INSERT INTO rows VALUES (hex(zeroblob(100000)))"))).toBe(true);
  db.close();
  const readOnly = new DatabaseSync(file, { readOnly: true });
  expect(isDependencyAway(failureOn("DELETE FROM rows", readOnly))).toBe(true);
  readOnly.close();
});

test("an event's own failure is none of its dependencies", () => {
  expect(isDependencyAway(new Error("isn't a WorkspaceDeleted"))).toBe(false);
  expect(isDependencyAway(new DomainError("INTERNAL_ERROR", "hidden"))).toBe(false);
  expect(isDependencyAway(new DomainError("NOT_FOUND", "no such thing"))).toBe(false);
  expect(isDependencyAway(new MongoServerError({ message: "duplicate key", code: 11_000 }))).toBe(false);
  expect(isDependencyAway("text")).toBe(false);
});

import { findFreePort } from "@sandgate/test-support/process";
import { MongoClient, MongoServerError } from "mongodb";
import { expect, test } from "vitest";
import { isDatabaseUnreachable } from "./database-unreachable.ts";

test("a database that can't be reached is distinguished from one that refuses", async () => {
  const client = new MongoClient(`mongodb://127.0.0.1:${await findFreePort()}`, { serverSelectionTimeoutMS: 50 });
  const error: unknown = await client
    .db("any")
    .command({ ping: 1 })
    .catch((cause: unknown) => cause);
  await client.close();
  expect(isDatabaseUnreachable(error)).toBe(true);
  expect(isDatabaseUnreachable(new Error("a store's own", { cause: error }))).toBe(true);
  const noPrimary = { message: "not primary", code: 10_107, errorLabels: ["RetryableWriteError"] };
  expect(isDatabaseUnreachable(new MongoServerError(noPrimary))).toBe(true);
  expect(isDatabaseUnreachable(new MongoServerError({ message: "duplicate key", code: 11_000 }))).toBe(false);
  expect(isDatabaseUnreachable(new Error("some other"))).toBe(false);
});

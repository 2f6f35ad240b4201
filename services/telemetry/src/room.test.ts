import { createMetrics } from "@sandgate/kit/base/metrics";
import { expect, test } from "vitest";
import { openRoom } from "./room.ts";

const database = { kind: "sqlite", file: "/data/telemetry.sqlite" } as const;
const never = 1_000_000_000;

test("a file in which enough was removed takes rows below the reserve too", async () => {
  let reusable = 0;
  const store = { reusableBytes: () => reusable };
  const room = openRoom({ database, store, reserveMb: never, metrics: createMetrics() });
  expect(await room.shortage()).toContain("SANDGATE_DISK_RESERVE_MB");
  reusable = 64 * 1024 * 1024;
  expect(await room.shortage()).toBeUndefined();
});

test("a database server's disk is its own affair", async () => {
  const target = { kind: "mongodb", url: "mongodb://nowhere", name: "x" } as const;
  const store = { reusableBytes: () => undefined };
  const room = openRoom({ database: target, store, reserveMb: never, metrics: createMetrics() });
  expect(await room.shortage()).toBeUndefined();
});

import { createMetrics } from "@sandgate/kit/base/metrics";
import { expect, test } from "vitest";
import { openDiskShortage } from "./disk-shortage.ts";

const database = { kind: "sqlite", file: "/data/telemetry.sqlite" } as const;
const never = 1_000_000_000;

test("a file in which enough was removed takes rows below the reserve too", async () => {
  let reusable = 0;
  const file = { reusableBytes: () => reusable };
  const shortage = openDiskShortage({ database, file, reserveMb: never, metrics: createMetrics() });
  expect(await shortage()).toContain("SANDGATE_DISK_RESERVE_MB");
  reusable = 64 * 1024 * 1024;
  expect(await shortage()).toBeUndefined();
});

test("a database server's disk is its own affair", async () => {
  const target = { kind: "mongodb", url: "mongodb://nowhere", name: "x" } as const;
  const shortage = openDiskShortage({ database: target, file: undefined, reserveMb: never, metrics: createMetrics() });
  expect(await shortage()).toBeUndefined();
});

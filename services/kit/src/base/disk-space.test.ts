import { statfs } from "node:fs/promises";
import { join } from "node:path";
import { test } from "@sandgate/test-support/test";
import { expect, vi } from "vitest";
import { openDiskSpace } from "./disk-space.ts";
import { createMetrics, printMetrics } from "./metrics.ts";
import { mebibyte } from "./sizes.ts";

function open(freeMb: Record<string, number>, reserveMb: number, folders = Object.keys(freeMb)) {
  const metrics = createMetrics();
  const findFreeBytes = vi.fn(async (folder: string) => (freeMb[folder] ?? Number.NaN) * mebibyte);
  return { metrics, findFreeBytes, space: openDiskSpace({ folders, reserveMb, metrics, findFreeBytes }) };
}

test("names the disk with less free than the reserve, and how much is free", async () => {
  const { space } = open({ "/data": 500, "/images": 99 }, 100);
  expect(await space.shortage()).toMatch(
    /^99 MB are free on the disk of \/images, .* 100 MB \(SANDGATE_DISK_RESERVE_MB\)$/,
  );
  expect(await space.measureAvailable()).toBe(-1 * mebibyte);
  expect(await space.measureFree()).toBe(599 * mebibyte);
  expect(await open({ "/data": 500, "/images": 100 }, 100).space.shortage()).toBeUndefined();
});

test("without a reserve nothing is short", async () => {
  const { space } = open({ "/data": 0 }, 0);
  expect(await space.shortage()).toBeUndefined();
  expect(await space.measureAvailable()).toBe(0);
});

test("counts a folder that is added later", async () => {
  const { space } = open({ "/data": 500, "/images": 50 }, 100, ["/data"]);
  expect(await space.shortage()).toBeUndefined();
  space.add("/images");
  expect(await space.shortage()).toContain("/images");
});

test("measures at most once a second, however often it is asked whether there is enough", async () => {
  vi.useFakeTimers({ toFake: ["performance"] });
  try {
    const { space, findFreeBytes } = open({ "/data": 500 }, 100);
    await Promise.all(Array.from({ length: 10 }, () => space.shortage()));
    expect(findFreeBytes).toHaveBeenCalledTimes(1);
    vi.advanceTimersByTime(1_000);
    await space.shortage();
    expect(findFreeBytes).toHaveBeenCalledTimes(2);
    await space.measureAvailable();
    expect(findFreeBytes).toHaveBeenCalledTimes(3);
  } finally {
    vi.useRealTimers();
  }
});

test("asks the file system, also for a folder that doesn't exist yet", async ({ folder }) => {
  const metrics = createMetrics();
  const space = openDiskSpace({ folders: [join(folder, "later", "on")], reserveMb: 0, metrics });
  const { blocks, bsize } = await statfs(folder);
  const available = await space.measureAvailable();
  expect(available).toBeGreaterThan(0);
  expect(available).toBeLessThan(blocks * bsize);
});

test("services of one process that share a disk show its figure once", async () => {
  const both = [open({ "/data": 500 }, 100), open({ "/data": 500 }, 100)];
  expect(await printMetrics(both.map(({ metrics }) => metrics))).toContain(
    `sandgate_disk_free_bytes{folder="/data"} ${500 * mebibyte}`,
  );
});

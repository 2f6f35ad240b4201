import { statfs } from "node:fs/promises";
import { join } from "node:path";
import { test } from "@sandgate/test-support/test";
import { expect, vi } from "vitest";
import { openDiskSpace } from "./disk-space.ts";
import { createLogger } from "./logging.ts";
import { createMetrics, printMetrics } from "./metrics.ts";
import { mebibyte } from "./sizes.ts";

const logger = createLogger({ service: "test", level: "silent" });

function open(freeMb: Record<string, number>, reserveMb: number, folders = Object.keys(freeMb)) {
  const metrics = createMetrics();
  const findFree = vi.fn(async (folder: string) => ({ bytes: (freeMb[folder] ?? Number.NaN) * mebibyte }));
  return { metrics, findFree, space: openDiskSpace({ folders, reserveMb, metrics, findFree }) };
}

test("names the disk with less free than the reserve, and how much is free", async () => {
  const { space } = open({ "/data": 500, "/images": 99 }, 100);
  expect(await space.shortage()).toMatch(
    /^99 MB are free on the disk of \/images, .* 100 MB \(SANDGATE_DISK_RESERVE_MB\)$/,
  );
  expect(await space.measureAvailable()).toBe(-1 * mebibyte);
  expect(await space.measureFree()).toEqual({ bytes: 599 * mebibyte, inodes: 0 });
  expect(await open({ "/data": 500, "/images": 100 }, 100).space.shortage()).toBeUndefined();
});

test("inodes have a reserve too, where a file system has a fixed number of them", async () => {
  const metrics = createMetrics();
  const inodes: Record<string, number | undefined> = { "/data": 100, "/images": 99, "/made-as-needed": undefined };
  const findFree = async (folder: string) => ({ bytes: 500 * mebibyte, inodes: inodes[folder] });
  const folders = Object.keys(inodes);
  const space = openDiskSpace({ folders, reserveMb: 100, reserveInodes: 100, metrics, findFree });
  expect(await space.shortage()).toMatch(
    /^99 inodes are free on the disk of \/images, .* 100 \(SANDGATE_DISK_RESERVE_INODES\)$/,
  );
  expect(await space.measureAvailable()).toBe(-1);
  expect(await space.measureFree()).toEqual({ bytes: 1_500 * mebibyte, inodes: 199 });
  expect(await printMetrics([metrics], logger)).toContain('sandgate_disk_free_inodes{folder="/images"} 99');
  inodes["/images"] = 100;
  expect(await space.measureAvailable()).toBe(400 * mebibyte);
  const unreserved = openDiskSpace({ folders, reserveMb: 100, metrics: createMetrics(), findFree });
  inodes["/images"] = 0;
  expect(await unreserved.shortage()).toBeUndefined();
});

test("a share of a disk is not available, and no shortage", async () => {
  const findFree = async (folder: string) => ({
    bytes: 200 * mebibyte,
    totalBytes: (folder === "/large" ? 1_000 : 500) * mebibyte,
  });
  const openWith = (reserveMb: number) =>
    openDiskSpace({
      folders: ["/large", "/small"],
      reserveMb,
      unavailablePercent: 15,
      metrics: createMetrics(),
      findFree,
    });
  expect(await openWith(100).measureAvailable()).toBe(50 * mebibyte);
  expect(await openWith(180).measureAvailable()).toBe(20 * mebibyte);
  expect(await openWith(180).shortage()).toBeUndefined();
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
    const { space, findFree } = open({ "/data": 500 }, 100);
    await Promise.all(Array.from({ length: 10 }, () => space.shortage()));
    expect(findFree).toHaveBeenCalledTimes(1);
    vi.advanceTimersByTime(1_000);
    await space.shortage();
    expect(findFree).toHaveBeenCalledTimes(2);
    await space.measureAvailable();
    expect(findFree).toHaveBeenCalledTimes(3);
  } finally {
    vi.useRealTimers();
  }
});

test("asks the file system, also for a folder that doesn't exist yet", async ({ folder }) => {
  const metrics = createMetrics();
  const space = openDiskSpace({ folders: [join(folder, "later", "on")], reserveMb: 0, metrics });
  const { blocks, bsize, files } = await statfs(folder);
  const available = await space.measureAvailable();
  expect(available).toBeGreaterThan(0);
  expect(available).toBeLessThan(blocks * bsize);
  expect((await space.measureFree()).inodes).toBeLessThanOrEqual(files);
});

test("services of one process that share a disk show its figure once", async () => {
  const both = [open({ "/data": 500 }, 100), open({ "/data": 500 }, 100)];
  expect(
    await printMetrics(
      both.map(({ metrics }) => metrics),
      logger,
    ),
  ).toContain(`sandgate_disk_free_bytes{folder="/data"} ${500 * mebibyte}`);
});

import { createLogger } from "@sandgate/kit/base/logging";
import { mebibyte } from "@sandgate/kit/base/sizes";
import { afterEach, beforeEach, expect, test, vi } from "vitest";
import type { DiskUse } from "../runtime/disk.ts";
import { createDiskWatch, type DiskWatch } from "./disk-watch.ts";

const minuteMs = 60_000;
/** Bytes. */
const uses = new Map<string, number>();
let free: { bytes: number; inodes: number };
let measured: string[];
let atOnce: number;
let mostAtOnce: number;
let full: string[];
let watch: DiskWatch;

function open(o: { measure?: (id: string) => Promise<DiskUse | undefined> } = {}): void {
  watch = createDiskWatch({
    limits: { mb: 10_240, inodes: 100_000 },
    runtimeDisk: {
      async measure(id) {
        measured.push(id);
        atOnce += 1;
        mostAtOnce = Math.max(mostAtOnce, atOnce);
        await new Promise((resolve) => setTimeout(resolve, 5));
        atOnce -= 1;
        const bytes = uses.get(id);
        return o.measure ? o.measure(id) : bytes === undefined ? undefined : { bytes };
      },
    },
    findFree: async () => ({ ...free }),
    onFull: (id) => full.push(id),
    logger: createLogger({ service: "sandbox", level: "silent" }),
  });
}

const countOf = (id: string) => measured.filter((each) => each === id).length;

beforeEach(() => {
  vi.useFakeTimers({ toFake: ["setTimeout", "clearTimeout", "setInterval", "clearInterval", "performance", "Date"] });
  uses.clear();
  free = { bytes: 100_000 * mebibyte, inodes: 1_000_000 };
  [measured, atOnce, mostAtOnce, full] = [[], 0, 0, []];
});
afterEach(async () => {
  const stopping = watch.stop();
  await vi.advanceTimersByTimeAsync(10_000);
  await stopping;
  vi.useRealTimers();
});

test("sandboxes that don't write are measured seldom, and few at once", async () => {
  open();
  const ids = Array.from({ length: 300 }, (_, index) => `s${index}`);
  for (const id of ids) uses.set(id, index(id) % 2 === 0 ? 0 : 9_000 * mebibyte);
  watch.replace(new Set(ids), performance.now());
  await vi.advanceTimersByTimeAsync(5 * minuteMs);
  measured = [];
  await vi.advanceTimersByTimeAsync(10 * minuteMs);
  // Half of them are near their limit.
  expect(measured.length / 300 / 10).toBeLessThan(3);
  expect(countOf("s0")).toBeLessThanOrEqual(11);
  expect(countOf("s1")).toBeGreaterThan(30);
  expect(mostAtOnce).toBe(4);
});

test("one that grows is found soon after it has reached its limit", async () => {
  open();
  watch.add("a");
  // 20 MB a second from the tenth minute on.
  const begunAt = Date.now() + 10 * minuteMs;
  const grow = setInterval(() => uses.set("a", Math.max(0, (Date.now() - begunAt) / 1_000) * 20 * mebibyte), 100);
  await vi.advanceTimersByTimeAsync(10 * minuteMs + 512_000 + 5_000);
  clearInterval(grow);
  expect(full).toEqual(["a"]);
  expect(watch.failureOf("a")).toMatchObject({ reason: "disk_full", message: expect.stringContaining("10240 MB") });
  expect(watch.failureOf("b")).toBeUndefined();
});

test("all are measured when the disk loses room quickly, however long they have been quiet", async () => {
  open();
  const ids = Array.from({ length: 50 }, (_, index) => `s${index}`);
  for (const id of ids) uses.set(id, 0);
  watch.replace(new Set(ids), performance.now());
  await watch.checkFreeDisk();
  await vi.advanceTimersByTimeAsync(10 * minuteMs);
  await watch.checkFreeDisk();
  measured = [];
  uses.set("s7", 11_000 * mebibyte);
  free.bytes -= 11_000 * mebibyte;
  const checking = watch.checkFreeDisk();
  await vi.advanceTimersByTimeAsync(100);
  await checking;
  expect(full).toEqual(["s7"]);
  expect(new Set(measured)).toEqual(new Set(ids));
  measured = [];
  await watch.checkFreeDisk();
  expect(measured).toEqual([]);
});

test("one that makes empty files is found soon after it has reached its limit, however its bytes are limited", async () => {
  const begunAt = Date.now() + 10 * minuteMs;
  // 10,000 a second from the tenth minute on.
  open({ measure: async () => ({ inodes: Math.max(0, (Date.now() - begunAt) * 10) }) });
  watch.add("a");
  await vi.advanceTimersByTimeAsync(10 * minuteMs);
  await watch.checkFreeDisk();
  for (let second = 0; second < 12; second++) {
    await vi.advanceTimersByTimeAsync(1_000);
    free.inodes -= 10_000;
    void watch.checkFreeDisk();
  }
  expect(full).toEqual(["a"]);
  expect(watch.failureOf("a")).toMatchObject({ reason: "disk_full", message: expect.stringContaining("100000") });
});

test("one that the storage limits, or that has ended, isn't measured again", async () => {
  open({ measure: async (id) => (id === "limited" ? {} : undefined) });
  for (let round = 0; round < 10; round++) {
    watch.replace(new Set(["limited"]), performance.now());
    watch.add("ended");
    await vi.advanceTimersByTimeAsync(5_000);
  }
  expect(countOf("limited")).toBe(1);
  watch.replace(new Set(), performance.now());
  measured = [];
  await vi.advanceTimersByTimeAsync(minuteMs);
  expect(measured).toEqual([]);
});

test("one that began after the list was made stays", async () => {
  open();
  const listedAt = performance.now() - 1;
  watch.add("new");
  watch.replace(new Set(), listedAt);
  await vi.advanceTimersByTimeAsync(1_100);
  expect(measured).toEqual(["new"]);
});

test("a measurement that fails is made again, and one that takes long leaves the engine time for others", async () => {
  let failures = 0;
  open({
    async measure(id) {
      if (id === "slow") await new Promise((resolve) => setTimeout(resolve, 2_000));
      else if (failures++ < 3) throw new Error("no answer");
      return { bytes: 11_000 * mebibyte * (id === "slow" ? 0 : 1) };
    },
  });
  watch.add("failing");
  watch.add("slow");
  await vi.advanceTimersByTimeAsync(minuteMs);
  expect(full).toEqual(["failing"]);
  expect(countOf("slow")).toBeLessThanOrEqual(2);
});

function index(id: string): number {
  return Number(id.slice(1));
}

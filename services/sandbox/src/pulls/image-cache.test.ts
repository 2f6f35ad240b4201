import { createLogger } from "@sandgate/kit/base/logging";
import { afterEach, beforeEach, expect, test, vi } from "vitest";
import type { StoredImage } from "../runtime/images.ts";
import { createImageCache } from "./image-cache.ts";

const host = "127.0.0.1:5080";
const hourMs = 3_600_000;
let engine: Map<string, StoredImage>;
/** What the disk lacks. */
let shortage: string | undefined;
/** As a database keeps them, so longer than a cache lives. */
let stored: Map<string, Date>;
let removals: string[];
let wanted: Set<string>;

const nameOf = (id: string) => `${host}/${id}@sha256:${id}`;

function bring(id: string, o: Partial<StoredImage> = {}): void {
  engine.set(id, { id, names: [nameOf(id)], sizeBytes: 40 * 1024 * 1024, isUsed: false, ...o });
}

function open(o: { maxMb?: number; onRemove?: () => Promise<void> } = {}) {
  return createImageCache({
    store: {
      list: async () => [...engine.values()],
      async remove(name) {
        await o.onRemove?.();
        removals.push(name);
        return [...engine].some(([id, { names }]) => names.includes(name) && engine.delete(id));
      },
    },
    uses: {
      async record({ name, at }) {
        stored.set(name, at);
      },
      list: async () => [...stored].map(([name, at]) => ({ name, at })),
      async forget(names) {
        for (const name of names) stored.delete(name);
      },
    },
    findWanted: async () => wanted,
    registryHost: async () => host,
    maxMb: o.maxMb ?? 100,
    shortage: async () => shortage,
    logger: createLogger({ service: "sandbox", level: "silent" }),
  });
}

async function use(id: string, cache: ReturnType<typeof open>): Promise<void> {
  await cache.using(nameOf(id), async () => bring(id));
  vi.advanceTimersByTime(hourMs);
}

beforeEach(() => {
  vi.useFakeTimers({ toFake: ["Date", "performance"] });
  shortage = undefined;
  [engine, stored, removals, wanted] = [new Map(), new Map(), [], new Set()];
});
afterEach(() => {
  vi.useRealTimers();
});

test("the image that was not used for longest goes, also when that was before a restart", async () => {
  const before = open();
  for (const id of ["a", "b", "c"]) await use(id, before);
  await use("a", before);
  const cache = open();
  await cache.trim();
  expect(removals).toEqual([nameOf("b")]);
  await cache.trim();
  expect(removals).toEqual([nameOf("b")]);
  expect([...stored.keys()].toSorted()).toEqual([nameOf("a"), nameOf("c")]);
});

test("nothing goes below the limit, or without one", async () => {
  for (const maxMb of [120, 0]) {
    const cache = open({ maxMb });
    for (const id of ["a", "b", "c"]) await use(id, cache);
    await cache.trim();
  }
  expect(removals).toEqual([]);
});

test("an image counts as 16 MB at least for each of its names", async () => {
  const cache = open({ maxMb: 47 });
  for (const id of ["a", "b"]) await use(id, cache);
  for (const id of ["a", "b"]) bring(id, { sizeBytes: 0 });
  await cache.trim();
  expect(removals).toEqual([]);
  bring("b", { sizeBytes: 0, names: [nameOf("b"), nameOf("other")] });
  await cache.trim();
  expect(removals).toEqual([nameOf("a")]);
});

test.each([0, 1_000])("while a disk is short, images go that nothing uses, with a limit of %i MB", async (maxMb) => {
  const cache = open({
    maxMb,
    async onRemove() {
      if (removals.length === 1) shortage = undefined;
    },
  });
  for (const id of ["used", "wanted", "a", "b", "c"]) await use(id, cache);
  bring("used", { isUsed: true });
  wanted.add("wanted");
  shortage = "few inodes are free";
  await cache.trim();
  expect(removals).toEqual([nameOf("a"), nameOf("b")]);
});

test("images are trimmed within a minute of a disk's shortage, else when that is requested", async () => {
  vi.useFakeTimers({ toFake: ["Date", "performance", "setTimeout", "clearTimeout"] });
  const cache = open({ maxMb: 0 });
  for (const id of ["a", "b"]) await use(id, cache);
  const lists = vi.spyOn(engine, "values");
  const task = cache.start();
  await expect.poll(() => lists.mock.calls.length).toBe(1);
  cache.requestTrim();
  await expect.poll(() => lists.mock.calls.length).toBe(2);
  shortage = "few inodes are free";
  await vi.advanceTimersByTimeAsync(60_000);
  await expect.poll(() => removals).toEqual([nameOf("a"), nameOf("b")]);
  await task.stop();
});

test("images that are used, wanted, being pulled or just pulled stay, and all that we didn't pull", async () => {
  const cache = open({ maxMb: 1 });
  for (const id of ["used", "wanted", "pulling", "idle"]) await use(id, cache);
  bring("used", { isUsed: true });
  bring("tagged", { names: [] });
  bring("operators", { names: ["docker.io/library/redis@sha256:rr", "127.0.0.1:5000/team/app@sha256:tt"] });
  wanted.add("wanted");
  const pulling = Promise.withResolvers<void>();
  const held = cache.using(nameOf("pulling"), () => pulling.promise);
  await cache.using(nameOf("new"), async () => bring("new"));
  await cache.trim();
  expect(removals).toEqual([nameOf("idle")]);
  vi.advanceTimersByTime(hourMs);
  await cache.trim();
  expect(removals).toEqual([nameOf("idle"), nameOf("new")]);
  pulling.resolve();
  await held;
});

test("an image that was pulled through another port, or whose use was never stored, is known from then on", async () => {
  const earlier = "127.0.0.1:6000/a@sha256:a";
  stored.set(earlier, new Date());
  bring("a", { names: [earlier] });
  bring("b");
  vi.advanceTimersByTime(hourMs);
  const cache = open({ maxMb: 50 });
  await cache.trim();
  expect(removals).toEqual([earlier]);
  vi.advanceTimersByTime(hourMs);
  await open({ maxMb: 1 }).trim();
  expect(removals).toEqual([earlier, nameOf("b")]);
});

test("a container's image counts as used until the container is gone", async () => {
  const cache = open({ maxMb: 50 });
  for (const id of ["long", "short"]) await use(id, cache);
  bring("long", { isUsed: true });
  await cache.trim();
  expect(removals).toEqual([nameOf("short")]);
  bring("long");
  await use("short", cache);
  await cache.trim();
  expect(removals).toEqual([nameOf("short"), nameOf("long")]);
});

test("who wants an image that is being removed waits, and brings it again", async () => {
  const removing = Promise.withResolvers<void>();
  const asked = Promise.withResolvers<void>();
  const cache = open({
    maxMb: 50,
    async onRemove() {
      asked.resolve();
      await removing.promise;
    },
  });
  for (const id of ["a", "b"]) await use(id, cache);
  const trimming = cache.trim();
  await asked.promise;
  let isThere: boolean | undefined;
  const using = cache.using(nameOf("a"), async () => {
    isThere = engine.has("a");
  });
  await Promise.resolve();
  expect(isThere).toBeUndefined();
  removing.resolve();
  await Promise.all([trimming, using]);
  expect(isThere).toBe(false);
});

test("an image that can't be removed keeps no other, and whoever wants it has it", async () => {
  const using: Promise<boolean>[] = [];
  const cache = open({
    maxMb: 100,
    async onRemove() {
      if (using.length > 0) return;
      await Promise.resolve();
      using.push(cache.using(nameOf("a"), async () => engine.has("a")));
      throw new Error("device or resource busy");
    },
  });
  for (const id of ["a", "b", "c"]) await use(id, cache);
  await cache.trim();
  expect(removals).toEqual([nameOf("b")]);
  expect(await Promise.all(using)).toEqual([true]);
});

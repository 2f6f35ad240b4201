import { createLogger } from "@sandgate/kit/base/logging";
import { afterEach, beforeEach, expect, test, vi } from "vitest";
import { createLocalSlots } from "./slots.local.ts";
import { createSharedSlots, type SlotLeases, type SlotRequest } from "./slots.shared.ts";
import type { Slots } from "./slots.ts";

const logger = createLogger({ service: "facade", level: "silent" });
const leaseMs = 30_000;

/** One count behind several facades, as identity keeps it. */
function createCount() {
  const held = new Map<string, Map<string, { held: number; endsAt: number }>>();
  const count = {
    calls: 0,
    isAway: false,
    /** Facades that are not heard of any more. */
    dead: new Set<string>(),
    async lease(holder: string, requests: readonly SlotRequest[]): Promise<SlotLeases> {
      count.calls += 1;
      if (count.isAway || count.dead.has(holder)) throw new Error("down");
      const answers = requests.map(({ key, limit, used, wanted }) => {
        const id = Buffer.from(key).toString("hex");
        const holders = held.get(id) ?? new Map<string, { held: number; endsAt: number }>();
        held.set(id, holders);
        const others = [...holders].filter(([other, { endsAt }]) => other !== holder && endsAt > performance.now());
        const own = Math.max(used, Math.min(wanted, limit - others.reduce((sum, [, { held }]) => sum + held, 0)));
        holders.set(holder, { held: own, endsAt: performance.now() + leaseMs });
        return own;
      });
      return { leased: answers, leaseMs };
    },
  };
  return count;
}

let opened: Slots[] = [];
beforeEach(() => {
  vi.useFakeTimers({ toFake: ["setInterval", "clearInterval", "performance"] });
});
afterEach(async () => {
  await Promise.all(opened.map((slots) => slots.close()));
  opened = [];
  vi.useRealTimers();
});

function openFacades(facades: number) {
  const count = createCount();
  const all = Array.from({ length: facades }, (_, index) =>
    createSharedSlots({ lease: (requests) => count.lease(`facade ${index}`, requests), logger }),
  );
  opened.push(...all);
  const [first, second, third] = all;
  if (!first) throw new Error("no facade");
  return { count, all, first, second: second ?? first, third: third ?? first };
}

const ofUser = { key: "user", limit: 200 };
const ofToken = (token: string) => ({ key: `token ${token}`, limit: 100 });

/** How many of so many that are opened at once, by the facades in turn, get a slot of each limit. */
async function open(facades: readonly Slots[], times: number, limits = [ofUser]): Promise<number> {
  const acquired = await Promise.all(
    Array.from({ length: times }, async (_, index) => facades[index % facades.length]?.acquire(limits)),
  );
  return acquired.filter((exceeded) => exceeded === undefined).length;
}

function close(facade: Slots, times: number, limits = [ofUser]): void {
  for (let index = 0; index < times; index++) facade.release(limits);
}

test("three facades together have no more open than the limit, and all of it when one asks after the others", async () => {
  const { count, all, first, second } = openFacades(3);
  const opened = await open(all, 300);
  expect(opened).toBeLessThanOrEqual(200);
  expect(opened).toBeGreaterThanOrEqual(200 - 2 * 4);
  expect(count.calls).toBeLessThan(200);
  // What two of them hold unused is given back with the next renewal.
  await vi.advanceTimersByTimeAsync(10_000);
  expect(opened + (await open([first], 10)) + (await open([second], 10))).toBe(200);
  expect(await second.acquire([ofUser])).toBe(ofUser);
});

test("a wait counts for its credential and its user, and one that is refused for neither", async () => {
  const { first, second } = openFacades(2);
  expect(await open([first, second], 150, [ofToken("a"), ofUser])).toBeGreaterThanOrEqual(98);
  expect(await first.acquire([ofToken("a"), ofUser])).toMatchObject({ key: "token a" });
  await vi.advanceTimersByTimeAsync(10_000);
  const opened = 100 - (await open([first], 200, [ofUser]));
  expect(opened).toBeLessThanOrEqual(4);
  expect(await first.acquire([ofToken("b"), ofUser])).toBe(ofUser);
});

test("what is closed in one facade is free for another at once", async () => {
  const { first, second } = openFacades(2);
  expect(await open([first], 201)).toBe(200);
  expect(await second.acquire([ofUser])).toBe(ofUser);
  close(first, 150);
  await vi.advanceTimersByTimeAsync(0);
  expect(await open([second], 1)).toBe(1);
  expect(await open([second], 150)).toBeGreaterThanOrEqual(140);
});

test("slots of a facade that died are free 30 s later, and those of one that lives are kept", async () => {
  const { count, first, second, third } = openFacades(3);
  await open([first], 120);
  await open([second], 70);
  count.dead.add("facade 0");
  expect(await open([third], 100)).toBeLessThanOrEqual(10);
  await vi.advanceTimersByTimeAsync(31_000);
  const more = await open([third], 150);
  expect(more).toBeGreaterThanOrEqual(110);
  expect(more).toBeLessThanOrEqual(130);
  expect(await open([second, third], 200)).toBeLessThanOrEqual(15);
});

test("a facade that is closed gives everything back", async () => {
  const { first, second } = openFacades(2);
  await open([first], 200);
  await first.close();
  expect(await open([second], 201)).toBe(200);
});

test("while the count can't be reached each facade counts alone, and is asked again after a while", async () => {
  const { count, first, second } = openFacades(2);
  await open([first], 50);
  count.isAway = true;
  const before = count.calls;
  expect(await open([first], 200)).toBe(150);
  expect(await open([second], 201)).toBe(200);
  // Each try may take as long as a deadline.
  expect(count.calls - before).toBe(2);
  count.isAway = false;
  await vi.advanceTimersByTimeAsync(10_000);
  // What is open stays open, and counts.
  expect(await first.acquire([ofUser])).toBe(ofUser);
  close(second, 200);
  close(first, 1);
  await vi.advanceTimersByTimeAsync(10_000);
  expect(await open([first], 1)).toBe(1);
});

test("many that open and close after each other seldom ask", async () => {
  const { count, first } = openFacades(1);
  for (let index = 0; index < 1_000; index++) {
    expect(await first.acquire([ofToken("a"), ofUser])).toBeUndefined();
    first.release([ofToken("a"), ofUser]);
  }
  expect(count.calls).toBe(1);
  await vi.advanceTimersByTimeAsync(20_000);
  expect(count.calls).toBe(2);
});

test("one process counts by itself", async () => {
  const slots = createLocalSlots();
  const one = { key: "a", limit: 1 };
  expect(slots.acquire([one, ofUser])).toBeUndefined();
  expect(slots.acquire([one, ofUser])).toBe(one);
  slots.release([one, ofUser]);
  expect(slots.acquire([one, ofUser])).toBeUndefined();
});

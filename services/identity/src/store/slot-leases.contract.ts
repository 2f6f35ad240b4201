import { afterEach, beforeEach, describe, expect, test } from "vitest";
import { at } from "./store.fixture.ts";
import type { IdentityStore } from "./store.ts";

/** What every adapter of `SlotLeases` does. `open` returns an empty store. */
export function describeSlotLeases(open: () => Promise<IdentityStore>): void {
  describe("slots of a limit that facades share", () => {
    let store: IdentityStore;

    beforeEach(async () => {
      store = await open();
    });

    afterEach(() => store.close());

    const key = new Uint8Array(32).fill(7);
    const other = new Uint8Array(32).fill(8);
    const acquire = async (holder: string, used: number, wanted: number, ms = 0) =>
      (await store.slotLeases.acquire(holder, [{ key, limit: 10, used, wanted }], at(ms)))[0];

    test("are leased up to the limit, and free for others once they are given back", async () => {
      expect(await acquire("a", 0, 4)).toBe(4);
      expect(await acquire("b", 0, 8)).toBe(6);
      expect(await acquire("c", 0, 1)).toBe(0);
      expect(await acquire("a", 1, 2)).toBe(2);
      expect(await acquire("c", 0, 5)).toBe(2);
      expect(await acquire("b", 0, 0)).toBe(0);
      expect(await acquire("c", 0, 20)).toBe(8);
    });

    test("in use are leased whatever the limit, and then nobody gets another", async () => {
      expect(await acquire("a", 0, 10)).toBe(10);
      expect(await acquire("b", 3, 5)).toBe(3);
      expect(await acquire("a", 8, 12)).toBe(8);
      expect(await acquire("c", 0, 1)).toBe(0);
    });

    test("are free again when their holder has not been heard of for 30 s", async () => {
      await acquire("a", 10, 10);
      await acquire("b", 0, 5, 29_999);
      expect(await acquire("b", 0, 5, 29_999)).toBe(0);
      await acquire("a", 4, 4, 29_999);
      expect(await acquire("b", 0, 10, 30_000)).toBe(6);
      expect(await acquire("b", 0, 10, 60_000)).toBe(10);
    });

    test("of many keys are leased at once, each apart", async () => {
      const requests = [
        { key, limit: 2, used: 0, wanted: 3 },
        { key: other, limit: 5, used: 1, wanted: 4 },
      ];
      expect(await store.slotLeases.acquire("a", requests, at(0))).toEqual([2, 4]);
      expect(await store.slotLeases.acquire("b", requests.toReversed(), at(0))).toEqual([1, 0]);
      expect(await store.slotLeases.acquire("a", [], at(0))).toEqual([]);
    });

    test("never exceed it when many acquire at once", async () => {
      const leased = await Promise.all(Array.from({ length: 20 }, (_, index) => acquire(`facade ${index}`, 0, 3)));
      expect(leased.reduce<number>((sum, each = 0) => sum + each, 0)).toBe(10);
    });
  });
}

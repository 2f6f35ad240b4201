import { minuteMs } from "@sandgate/kit/base/time";
import { afterEach, beforeEach, describe, expect, test } from "vitest";
import { type Budget, requestWindowMs } from "../domain/rate-counters.ts";
import { at } from "./store.fixture.ts";
import type { IdentityStore } from "./store.ts";

/** What every adapter of `RateCounters` does. `open` returns an empty store. */
export function describeRateCounters(open: () => Promise<IdentityStore>): void {
  describe("rate counters", () => {
    let store: IdentityStore;

    beforeEach(async () => {
      store = await open();
    });

    afterEach(() => store.close());

    describe("requests of a shared limit", () => {
      const consume = (limit: number, wanted: number, ms: number) =>
        store.rateCounters.consume(
          { key: new Uint8Array(32).fill(7), limit, windowMs: requestWindowMs },
          wanted,
          at(ms),
        );

      test("are granted up to the limit, and again in the next window", async () => {
        expect(await consume(10, 4, 0)).toEqual({
          granted: 4,
          remaining: 6,
          endsAt: at(60_000),
        });
        expect(await consume(10, 8, 59_999)).toMatchObject({
          granted: 6,
          remaining: 0,
          endsAt: at(60_000),
        });
        expect((await consume(10, 1, 59_999)).granted).toBe(0);
        expect(await consume(10, 1, 60_000)).toEqual({
          granted: 1,
          remaining: 9,
          endsAt: at(120_000),
        });
      });

      test("are returned to the window that they were taken from alone", async () => {
        const key = new Uint8Array(32).fill(7);
        const { endsAt } = await consume(2, 2, 0);
        await store.rateCounters.giveBack({ key }, at(59_999));
        expect((await consume(2, 1, 1)).granted).toBe(0);
        await store.rateCounters.giveBack({ key }, endsAt);
        expect((await consume(2, 2, 2)).granted).toBe(1);
      });

      test("are granted soon after the clock was set back", async () => {
        await consume(1, 1, 120_001);
        expect((await consume(1, 1, 60_001)).granted).toBe(0);
        expect(await consume(1, 1, 0)).toEqual({ granted: 1, remaining: 0, endsAt: at(60_000) });
      });

      test("never exceed it when many consume at once", async () => {
        const consumed = await Promise.all(Array.from({ length: 20 }, () => consume(50, 4, 0)));
        expect(consumed.reduce((sum, { granted }) => sum + granted, 0)).toBe(50);
      });
    });

    describe("budgets", () => {
      const bytes = (fill: number) => new Uint8Array(32).fill(fill);
      const budget = (fill: number, limit: number, windowMs = minuteMs): Budget => ({
        key: bytes(fill),
        limit,
        windowMs,
      });

      test("last for their window, which begins with the first", async () => {
        const consume = (ms: number) => store.rateCounters.consumeEach([budget(1, 2, 3 * minuteMs)], at(ms));
        expect(await consume(0)).toBeUndefined();
        expect(await consume(1)).toBeUndefined();
        expect(await consume(3 * minuteMs - 1)).toEqual({ index: 0, endsAt: at(3 * minuteMs) });
        expect(await consume(3 * minuteMs)).toBeUndefined();
      });

      test("are taken from together or not at all", async () => {
        expect(await store.rateCounters.consumeEach([budget(1, 2), budget(2, 1)], at(0))).toBeUndefined();
        expect(await store.rateCounters.consumeEach([budget(1, 2), budget(2, 1)], at(1))).toEqual({
          index: 1,
          endsAt: at(minuteMs),
        });
        expect(await store.rateCounters.consumeEach([budget(1, 2)], at(2))).toBeUndefined();
        expect(await store.rateCounters.consumeEach([budget(1, 2)], at(3))).toMatchObject({ index: 0 });
      });

      test("never give more than they have when many ask at once", async () => {
        const asked = Array.from({ length: 20 }, () =>
          store.rateCounters.consumeEach([budget(1, 7), budget(2, 100)], at(0)),
        );
        expect((await Promise.all(asked)).filter((refusal) => refusal === undefined)).toHaveLength(7);
      });
    });
  });
}

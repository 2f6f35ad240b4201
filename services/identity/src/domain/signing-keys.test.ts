import { addMs } from "@sandgate/kit/base/time";
import { describe, expect, test } from "vitest";
import { findOutdatedKeys, needsNewKey, pickSigningKey } from "./signing-keys.ts";

const minuteMs = 60_000;
const dayMs = 24 * 60 * minuteMs;
const t0 = new Date(Date.UTC(2026, 0, 1));
const at = (ms: number) => addMs(t0, ms);
const keysAt = (...times: Date[]) => times.map((createdAt) => ({ createdAt }));

describe("the rules of signing keys", () => {
  test("a key is made when there is none, and 90 days later", () => {
    expect(needsNewKey([], t0)).toBe(true);
    expect(needsNewKey(keysAt(t0), at(90 * dayMs - 1))).toBe(false);
    expect(needsNewKey(keysAt(t0), at(90 * dayMs))).toBe(true);
    expect(needsNewKey(keysAt(t0, at(90 * dayMs)), at(91 * dayMs))).toBe(false);
  });

  test("the first key signs at once, a later one when the facades know it", () => {
    const [old, young] = [{ createdAt: t0 }, { createdAt: at(90 * dayMs) }];
    expect(pickSigningKey([], t0)).toBeUndefined();
    expect(pickSigningKey([old], t0)).toBe(old);
    expect(pickSigningKey([young, old], addMs(young.createdAt, 10 * minuteMs - 1))).toBe(old);
    expect(pickSigningKey([young, old], addMs(young.createdAt, 10 * minuteMs))).toBe(young);
  });

  test("a key goes when its successor has signed for a day", () => {
    const [old, young] = [{ createdAt: t0 }, { createdAt: at(90 * dayMs) }];
    const signedForADay = addMs(young.createdAt, 10 * minuteMs + dayMs);
    expect(findOutdatedKeys([old, young], addMs(signedForADay, -1))).toEqual([]);
    expect(findOutdatedKeys([old, young], signedForADay)).toEqual([old]);
    expect(findOutdatedKeys([old], at(1000 * dayMs))).toEqual([]);
  });
});

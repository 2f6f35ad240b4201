import { expect, test } from "vitest";
import { grantOf } from "./rate-counters.ts";

test("a window grants what it still has", () => {
  expect(grantOf(0, 10, 4)).toBe(4);
  expect(grantOf(8, 10, 4)).toBe(2);
  expect(grantOf(10, 10, 1)).toBe(0);
  // The limit may have been lowered.
  expect(grantOf(12, 10, 1)).toBe(0);
});

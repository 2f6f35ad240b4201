import { expect, test } from "vitest";
import { backoffMs } from "./backoff.ts";

const bounds = { firstMs: 200, lastMs: 1_000 };

test("the delay doubles from the first to the last, and half of it is random", () => {
  const delays = (random: number) =>
    [1, 2, 3, 4, 5, 5_000].map((failures) => backoffMs(failures, bounds, () => random));
  expect(delays(1)).toEqual([200, 400, 800, 1_000, 1_000, 1_000]);
  expect(delays(0)).toEqual([100, 200, 400, 500, 500, 500]);
});

test("it is random unless told otherwise", () => {
  const delays = Array.from({ length: 100 }, () => backoffMs(1, bounds));
  expect(new Set(delays).size).toBeGreaterThan(30);
  for (const delay of delays) expect(Number.isInteger(delay) && delay >= 100 && delay <= 200).toBe(true);
});

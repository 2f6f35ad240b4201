import { addMs, dayMs } from "@sandgate/kit/base/time";
import { expect, test } from "vitest";
import { nextForgotten } from "./verified-layers.ts";

test("a layer is forgotten after 90 days, or earlier when there are more than a million", () => {
  const now = new Date("2026-01-01T00:00:00Z");
  expect(nextForgotten(now, 1_000_000, 200)).toEqual({ before: addMs(now, -90 * dayMs), limit: 200 });
  expect(nextForgotten(now, 1_000_001, 200)).toEqual({ before: now, limit: 1 });
  expect(nextForgotten(now, 2_000_000, 200)).toEqual({ before: now, limit: 200 });
});

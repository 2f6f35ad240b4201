import { addMs, dayMs } from "@sandgate/kit/base/time";
import { expect, test } from "vitest";
import { forgottenBefore } from "./verified-layers.ts";

test("a layer is forgotten after 90 days, or earlier when there are too many newer ones", () => {
  const now = new Date("2026-01-01T00:00:00Z");
  const daysAgo = (days: number) => addMs(now, -days * dayMs);
  expect(forgottenBefore(now, undefined)).toEqual(daysAgo(90));
  expect(forgottenBefore(now, daysAgo(100))).toEqual(daysAgo(90));
  expect(forgottenBefore(now, daysAgo(10))).toEqual(daysAgo(10));
});

import { expect, test } from "vitest";
import { slotsFor } from "./slot-leases.ts";

test("a facade gets what the others leave, and keeps what it has in use", () => {
  const request = { key: new Uint8Array(32), limit: 10, used: 3, wanted: 6 };
  expect(slotsFor(request, 0)).toBe(6);
  expect(slotsFor(request, 5)).toBe(5);
  expect(slotsFor(request, 9)).toBe(3);
  expect(slotsFor({ ...request, used: 0, wanted: 0 }, 0)).toBe(0);
});

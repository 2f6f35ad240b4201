import { expect, test } from "vitest";
import { isUuid, newId } from "./ids.ts";

const timeOf = (id: string) => Number.parseInt(id.replaceAll("-", "").slice(0, 12), 16);

test("ids are UUIDv7 of their time", () => {
  // Another test of this process may have made ids of times to come.
  const now = timeOf(newId()) + 60_000;
  const id = newId(now);
  expect(id).toMatch(/^[0-9a-f]{8}-[0-9a-f]{4}-7[0-9a-f]{3}-[89ab][0-9a-f]{3}-[0-9a-f]{12}$/);
  expect(timeOf(id)).toBe(now);
});

test("ids grow, within a millisecond, past its counter and when the clock goes back", () => {
  const now = Date.now() + 120_000;
  const ids = Array.from({ length: 20_000 }, (_, i) => newId(i % 3 === 0 ? now - 50 : now));
  expect(new Set(ids).size).toBe(ids.length);
  expect([...ids].sort()).toEqual(ids);
});

test.each([
  ["018f4b1e-0000-7000-8000-000000000000", true],
  ["018F4B1E-0000-7000-8000-000000000000", false],
  ["018f4b1e-0000-7000-c000-000000000000", false],
  ["018f4b1e000070008000000000000000", false],
  ["", false],
])("isUuid(%s) is %s", (text, answer) => {
  expect(isUuid(text)).toBe(answer);
});

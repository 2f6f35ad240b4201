import { expect, test } from "vitest";
import { nextAnnouncement } from "./deletions.ts";

test("the longest delay between announcements grows from a minute to an hour", () => {
  const now = new Date("2026-01-01T00:00:00Z");
  const longest = () => 1;
  const minutes = [1, 2, 3, 6, 7, 50].map(
    (n) => (nextAnnouncement(n, now, longest).getTime() - now.getTime()) / 60_000,
  );
  expect(minutes).toEqual([1, 2, 4, 32, 60, 60]);
});

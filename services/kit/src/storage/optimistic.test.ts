import { expect, test, vi } from "vitest";
import { retryWhileStale, type Stale } from "./optimistic.ts";

test("a stale attempt is made again, and the first that is not is the answer", async () => {
  const attempt = vi.fn<() => Promise<number | Stale>>().mockResolvedValue("stale").mockResolvedValueOnce("stale");
  attempt.mockResolvedValueOnce(7);
  expect(await retryWhileStale(attempt)).toBe(7);
  expect(attempt).toHaveBeenCalledTimes(2);
});

test("attempts that stay stale end with an error", async () => {
  await expect(retryWhileStale<void>(async () => "stale")).rejects.toThrow("200 times");
});

test("an error ends the attempts", async () => {
  const attempt = vi.fn<() => Promise<number | Stale>>().mockRejectedValue(new Error("refused"));
  await expect(retryWhileStale(attempt)).rejects.toThrow("refused");
  expect(attempt).toHaveBeenCalledTimes(1);
});

import { expect, test } from "vitest";
import { createWriteLimit } from "./write-limit.ts";

test("lets a second's worth through at once after a pause, and then so many a second", async () => {
  const startedAt = performance.now();
  const takeTurn = createWriteLimit(100, () => startedAt);
  for (let turn = 0; turn < 100; turn++) await takeTurn();
  const waiting = new AbortController();
  const turns = Array.from({ length: 3 }, () => takeTurn(waiting.signal).then(() => "through"));
  const reason = new Error("enough");
  waiting.abort(reason);
  expect((await Promise.allSettled(turns)).map(({ status }) => status)).toEqual(["rejected", "rejected", "rejected"]);
});

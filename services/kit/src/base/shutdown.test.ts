import { setTimeout as delay } from "node:timers/promises";
import { expect, test } from "vitest";
import { endInTurn, endTogether } from "./shutdown.ts";

const fail = (message: string) => Promise.reject(new Error(message));

test("what ends together is waited for, also when some of it fails", async () => {
  let ended = false;
  const slow = delay(20).then(() => {
    ended = true;
  });
  await expect(endTogether([slow, fail("first"), fail("second")])).rejects.toThrow("first");
  expect(ended).toBe(true);
  await endTogether([slow]);
});

test("each step is taken after the ones before it, also when one fails", async () => {
  const taken: string[] = [];
  const steps = endInTurn(
    () => delay(20).then(() => taken.push("slow")),
    () => fail("first"),
    () => {
      taken.push("at once");
      throw new Error("second");
    },
    () => taken.push("last"),
  );
  await expect(steps).rejects.toThrow("first");
  expect(taken).toEqual(["slow", "at once", "last"]);
});

import { expect, test } from "vitest";
import { createSharedValues } from "./shared-values.ts";

test("a value is made once for all who use it at the same time, and again for who comes after them", async () => {
  const values = createSharedValues<number>();
  let made = 0;
  const use = (key = "a") => values.use(key, async () => ++made);
  const [first, second, other] = [use(), use(), use("b")];
  expect(await Promise.all([first.value, second.value, other.value])).toEqual([1, 1, 2]);
  first.leave();
  first.leave();
  const third = use();
  expect(await third.value).toBe(1);
  second.leave();
  third.leave();
  const fourth = use();
  expect(await fourth.value).toBe(3);
  // It has left long ago, and ends nobody else's use.
  third.leave();
  expect(await use().value).toBe(3);
});

test("who comes after a failure tries again", async () => {
  const values = createSharedValues<number>();
  const failing = values.use("a", async () => {
    throw new Error("not now");
  });
  await expect(failing.value).rejects.toThrow("not now");
  failing.leave();
  expect(await values.use("a", async () => 1).value).toBe(1);
});

import { expect, test } from "vitest";
import { stateOf } from "./dependencies.ts";

test("a dependency is ok, or said to be wrong in a line, also when it says nothing", async () => {
  expect(await stateOf(Promise.resolve([]))).toBe("ok");
  expect(await stateOf(Promise.reject(new Error("connection refused")))).toBe("connection refused");
  expect(await stateOf(new Promise(() => {}))).toBe("no answer in time");
});

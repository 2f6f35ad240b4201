import { expect, test } from "vitest";
import { stateOf, statesOf } from "./dependencies.ts";

test("a dependency is ok, or said to be wrong in a line, also when it says nothing", async () => {
  expect(await stateOf(Promise.resolve([]))).toBe("ok");
  expect(await stateOf(Promise.reject(new Error("connection refused")))).toBe("connection refused");
  expect(await stateOf(new Promise(() => {}))).toBe("no answer in time");
});

test("a failure to ask for the states is a state too", async () => {
  expect(await statesOf(Promise.resolve({ database: "ok" }))).toEqual({ database: "ok" });
  expect(await statesOf(Promise.reject(new Error("not now")))).toEqual({ dependencies: "not now" });
  expect(await statesOf(new Promise(() => {}))).toEqual({ dependencies: "no answer in time" });
});

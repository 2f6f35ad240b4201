import { expect, test } from "vitest";
import { pathText, programOf } from "./audited-uses.ts";

test.each([
  [["/usr/bin/env", "TOKEN=canary", "sh"], "env"],
  [["python3", "-c", "canary"], "python3"],
  [["./run/"], "run"],
  [["/"], "/"],
  [[], "sh"],
])("of the command %j the program's name alone is told: %s", (argv, program) => {
  expect(programOf({ argv })).toBe(program);
});

test("a long name or path is cut, and a path that is no UTF-8 is text all the same", () => {
  expect(programOf({ argv: ["x".repeat(5_000)] })).toHaveLength(129);
  expect(pathText(Buffer.from("/a/ä"))).toBe("/a/ä");
  expect(pathText(Buffer.from([0x2f, 0xff]))).toBe("/\ufffd");
  expect(pathText(Buffer.alloc(4_095, "x"))).toHaveLength(1_001);
});

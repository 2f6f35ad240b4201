import { setFlagsFromString } from "node:v8";
import { runInNewContext } from "node:vm";
import { mebibyte } from "@sandgate/kit/base/sizes";
import { expect, test } from "vitest";
import { maxLineBytes } from "../domain/rows.ts";
import { createCriLines, createRecordParser } from "./cri-lines.ts";

/** Bytes of the heap in use after a collection of garbage. */
function measureMemory(): number {
  setFlagsFromString("--expose-gc");
  runInNewContext("gc")();
  const { heapUsed } = process.memoryUsage();
  return heapUsed;
}

test.each([" ", "2", ":", "2026-11-22T16:14:06.", "stdout F "])("a file of nothing but %j has no record", (unit) => {
  expect(createRecordParser()(Buffer.from(unit.repeat((16 * mebibyte) / unit.length)))).toBeUndefined();
});

test("a line that a runtime writes byte by byte takes little more memory than its bytes", () => {
  const parse = createRecordParser();
  const record = parse(Buffer.from("2026-11-22T16:14:06Z stdout P x"));
  if (!record) throw new Error("not a record");
  const before = measureMemory();
  const open = Array.from({ length: 8 }, () => createCriLines(""));
  for (const lines of open) {
    for (let offset = 0; offset < maxLineBytes; offset++) {
      lines.take(record, { fileId: 1n, offset }, { fileId: 1n, offset: offset + 1 });
    }
  }
  expect(measureMemory() - before).toBeLessThan(20_000_000);
  for (const lines of open) expect(lines.finish()).toMatchObject([{ log: "x".repeat(maxLineBytes) }]);
});

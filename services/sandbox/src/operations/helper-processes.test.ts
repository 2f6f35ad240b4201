import { create, type MessageInitShape } from "@bufbuild/protobuf";
import { timestampNow } from "@bufbuild/protobuf/wkt";
import { ProcessSchema, ProcessState } from "@sandgate/proto/helper/v1/process";
import { expect, test } from "vitest";
import { boundProcess } from "./helper-processes.ts";

const id = "01900000-0000-7000-8000-0000000000bb";
const processOf = (changes: MessageInitShape<typeof ProcessSchema> = {}) =>
  create(ProcessSchema, { id, pid: 7, state: ProcessState.RUNNING, startedAt: timestampNow(), ...changes });

test("a process is passed on as the helper tells of it", () => {
  for (const process of [
    processOf(),
    processOf({ state: ProcessState.EXITED, exitCode: 137, signal: 9, endedAt: timestampNow(), outputBytes: 9n }),
    processOf({ pid: 0, exitCode: 127, terminal: { cols: 1_000, rows: 1 } }),
  ]) {
    expect(boundProcess(process, id)).toBe(process);
  }
});

test.each<MessageInitShape<typeof ProcessSchema>>([
  { id: "1" },
  { pid: -1 },
  { state: ProcessState.UNSPECIFIED },
  { state: 9 as ProcessState },
  { exitCode: -1 },
  { exitCode: 256 },
  { signal: 65 },
  { outputBytes: -1n },
  { outputBytes: 2n ** 62n },
  { retainedFrom: 2n, outputBytes: 1n },
  { startedAt: undefined },
  { startedAt: { seconds: 2n ** 60n } },
  { endedAt: { seconds: 1n, nanos: -1 } },
  { terminal: { cols: 0, rows: 1 } },
])("one that can't be is an upstream error: %s", (changes) => {
  expect(() => boundProcess(processOf(changes))).toThrow(expect.objectContaining({ reason: "UPSTREAM_ERROR" }));
});

test("so is none, and another one than was asked for", () => {
  expect(() => boundProcess(undefined)).toThrow();
  expect(() => boundProcess(processOf(), "01900000-0000-7000-8000-0000000000cc")).toThrow();
});

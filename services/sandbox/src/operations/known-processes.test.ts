import { create } from "@bufbuild/protobuf";
import { ProcessSchema, ProcessState } from "@sandgate/proto/helper/v1/process";
import { expect, test } from "vitest";
import { createKnownProcesses } from "./known-processes.ts";

const processOf = (id: string, state: ProcessState = ProcessState.RUNNING) =>
  create(ProcessSchema, { id, state, stdinOpen: true });

test("what ran when the helper was killed is lost, and what had ended is not", () => {
  const known = createKnownProcesses();
  known.note("a", "first", processOf("runs"));
  known.note("a", "first", processOf("ends"));
  known.note("a", "first", processOf("ends", ProcessState.EXITED));
  known.note("b", "first", processOf("elsewhere"));
  expect(known.findLost("a", "first")).toEqual([]);
  const lost = [expect.objectContaining({ id: "runs", state: ProcessState.LOST, stdinOpen: false })];
  expect(known.findLost("a", "second")).toEqual(lost);
  known.note("a", "second", processOf("new"));
  expect(known.findLost("a", "second")).toEqual(lost);
  expect(known.findLost("a", "third").map(({ id }) => id)).toEqual(["runs", "new"]);
});

test("a helper that names ever new processes fills no memory", () => {
  const known = createKnownProcesses();
  for (let index = 0; index < 1_000; index++) known.note("a", "first", processOf(String(index)));
  expect(known.findLost("a", "second")).toHaveLength(64);
});

import { setFlagsFromString } from "node:v8";
import { runInNewContext } from "node:vm";
import { create } from "@bufbuild/protobuf";
import { mebibyte } from "@sandgate/kit/base/sizes";
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

test("a helper that tells of long commands fills no memory, and no other's place", () => {
  const known = createKnownProcesses();
  const long = "x".repeat(200_000);
  known.note("small", "first", processOf("kept"));
  for (let sandbox = 0; sandbox < 100; sandbox++) {
    for (let index = 0; index < 64; index++) {
      const argv = [`program ${long}`, long];
      known.note(`s${sandbox}`, "first", create(ProcessSchema, { ...processOf(String(index)), argv, cwd: long }));
    }
  }
  const lost = known.findLost("s99", "second");
  expect(lost).toHaveLength(64);
  for (const { argv, cwd } of lost) {
    expect(argv).toEqual([expect.stringMatching(/^program x{1,1000}$/)]);
    expect(cwd.length).toBeLessThan(1_000);
  }
  expect(known.findLost("small", "second")).toHaveLength(1);
});

test("a helper that names ever new processes fills no memory", () => {
  const known = createKnownProcesses();
  for (let index = 0; index < 1_000; index++) known.note("a", "first", processOf(String(index)));
  expect(known.findLost("a", "second")).toHaveLength(64);
});

test("of a long command no more is kept in memory than what is remembered", () => {
  setFlagsFromString("--expose-gc");
  const collect: () => void = runInNewContext("gc");
  const heldBytes = () => {
    collect();
    return process.memoryUsage().heapUsed;
  };
  const known = createKnownProcesses();
  const before = heldBytes();
  for (let index = 0; index < 64; index++) {
    const argv = [`program ${index} `.repeat(mebibyte / 4)];
    known.note("a", "first", create(ProcessSchema, { ...processOf(String(index)), argv }));
  }
  expect(heldBytes() - before).toBeLessThan(16 * mebibyte);
  expect(known.findLost("a", "second")).toHaveLength(64);
});

test("sandboxes in which nothing ran fill no memory", () => {
  const known = createKnownProcesses();
  known.note("a", "first", processOf("runs"));
  for (let sandbox = 0; sandbox < 100_000; sandbox++) known.findLost(`s${sandbox}`, "first");
  expect(known.findLost("a", "second")).toEqual([]);
});

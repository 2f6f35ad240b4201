import { expect, test } from "vitest";
import type { Observation } from "../runtime/lifecycle.ts";
import { exitFailure } from "./failures.ts";

const ended: Observation = { sandboxId: "s1", phase: "exited", createdAt: new Date(0) };

test.each<[end: Partial<Observation>, reason: string, message: string]>([
  [{ exitCode: 0 }, "exited", "The container exited with code 0."],
  [{ exitCode: 3 }, "exited", "The container exited with code 3."],
  [{ exitCode: 137 }, "exited", "The container exited with code 137 (SIGKILL)."],
  [{ exitCode: 139 }, "exited", "The container exited with code 139 (SIGSEGV)."],
  [{ exitCode: 143 }, "exited", "The container exited with code 143 (SIGTERM)."],
  [{ exitCode: 255 }, "exited", "The container exited with code 255."],
  [{}, "exited", "The container exited with code unknown."],
  [
    { exitCode: 137, outOfMemory: true },
    "out_of_memory",
    "The container used more memory than its limit and was killed.",
  ],
  [{ exitCode: 137, failure: { reason: "evicted", message: "why" } }, "evicted", "why"],
])("the end %o is told as %s", (end, reason, message) => {
  const { exitCode } = end;
  expect(exitFailure({ ...ended, ...end })).toEqual({ reason, message, ...(exitCode !== undefined && { exitCode }) });
});

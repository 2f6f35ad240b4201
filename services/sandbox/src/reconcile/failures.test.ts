import { expect, test } from "vitest";
import { type Observation, SandboxRefused } from "../runtime/lifecycle.ts";
import { startFailureOf } from "../runtime/start-failures.ts";
import { exitFailure, failureOf } from "./failures.ts";

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

test.each([
  [
    'OCI runtime create failed: runc create failed: exec: "/no": stat /no: no such file or directory: unknown',
    "lacks its",
  ],
  ["unable to find user nobody: no matching entries in passwd file", "user or group"],
  ["failed to create endpoint on network sandgate-1: dial unix /run/docker/plugins/x.sock: refused", "started."],
])("what an engine says of a start is for the log, and a cause of ours for the user: %s", (said, text) => {
  const refused = new SandboxRefused(startFailureOf(said));
  expect(failureOf(refused)).toMatchObject({ reason: "start_failed", detail: said });
  expect(refused.message).toContain(text);
  expect(refused.message).not.toMatch(/exec|runc|dial|\/|nobody/);
});

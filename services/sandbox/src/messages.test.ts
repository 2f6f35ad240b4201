import { equals, fromBinary, isFieldSet, toBinary } from "@bufbuild/protobuf";
import { SandboxSchema } from "@sandgate/proto/sandbox/v1/sandbox";
import { expect, test } from "vitest";
import { acceptSandbox, fail } from "./domain/sandbox.ts";
import { toMessage } from "./messages.ts";

const accepted = acceptSandbox({
  id: "s1",
  name: "one",
  workspaceId: "w1",
  image: {
    imageId: "i1",
    reference: "docker.io/library/busybox:latest",
    registryId: "",
    isDefault: false,
    memoryMb: 256,
  },
  labels: { team: "a" },
  createdBy: "u1",
  now: new Date("2026-01-01T00:00:00Z"),
});

test("a field that the record doesn't have is not set in the message", () => {
  const message = toMessage(accepted);
  expect(isFieldSet(message, SandboxSchema.field.exitCode)).toBe(false);
  expect(isFieldSet(message, SandboxSchema.field.stoppedAt)).toBe(false);
  expect(equals(SandboxSchema, fromBinary(SandboxSchema, toBinary(SandboxSchema, message)), message)).toBe(true);
});

test("a field whose value is zero is set", () => {
  const message = toMessage(fail(accepted, { reason: "exited", message: "over", exitCode: 0 }, accepted.createdAt));
  expect(isFieldSet(message, SandboxSchema.field.exitCode)).toBe(true);
});

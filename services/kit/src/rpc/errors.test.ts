import { toBinary } from "@bufbuild/protobuf";
import { Code, ConnectError } from "@connectrpc/connect";
import { ErrorNoteSchema } from "@sandgate/proto/common/v1/error";
import { expect, test } from "vitest";
import { DomainError, invalid } from "../base/domain-error.ts";
import { internalErrors, isReason, publicErrors } from "../base/reasons.ts";
import { fromConnectError, toConnectError } from "./errors.ts";

const reasons = Object.keys({ ...publicErrors, ...internalErrors }).filter(isReason);

test("there are 25 public reasons and 8 internal ones", () => {
  expect(Object.keys(publicErrors)).toHaveLength(25);
  expect(Object.keys(internalErrors)).toHaveLength(8);
});

test.each(reasons.filter((reason) => reason !== "INTERNAL_ERROR"))("%s crosses a call unchanged", (reason) => {
  const sent = new DomainError(reason, "Because.", {
    hint: "Try this.",
    retryAfterSeconds: 3,
    callersFault: true,
    violations: [{ field: "memory_mb", issue: "too small" }],
  });
  const got = fromConnectError(toConnectError(sent));
  expect(got).toMatchObject({
    reason,
    message: "Because.",
    hint: "Try this.",
    retryAfterSeconds: 3,
    callersFault: true,
    violations: [{ field: "memory_mb", issue: "too small" }],
  });
});

test.each([2 ** 40, Number.POSITIVE_INFINITY])(
  "an error to be tried again in %d s can be sent",
  (retryAfterSeconds) => {
    const sent = toConnectError(new DomainError("RATE_LIMITED", "Slow down.", { retryAfterSeconds }));
    const [note] = sent.findDetails(ErrorNoteSchema);
    expect(note && toBinary(ErrorNoteSchema, note)).toBeInstanceOf(Uint8Array);
    expect(fromConnectError(sent)).toMatchObject({ retryAfterSeconds: 2 ** 31 - 1 });
  },
);

test("what is absent stays absent", () => {
  const got = fromConnectError(toConnectError(new DomainError("CONFLICT", "Taken.")));
  expect(got).toMatchObject({
    hint: undefined,
    violations: undefined,
    retryAfterSeconds: undefined,
    callersFault: false,
  });
});

test("an unexpected error shows nothing of itself", () => {
  for (const fault of [
    new Error("secret"),
    "secret",
    new DomainError("INTERNAL_ERROR", "secret", { hint: "secret" }),
    new ConnectError("secret", Code.DataLoss),
  ]) {
    const shown = toConnectError(fault);
    expect(shown.code).toBe(Code.Internal);
    expect(shown.message).not.toContain("secret");
    expect(shown.details).toHaveLength(1);
    const got = fromConnectError(shown);
    expect(got).toMatchObject({ reason: "INTERNAL_ERROR", hint: undefined });
    expect(got.message).not.toContain("secret");
  }
});

test.each([
  [Code.Unavailable, "UPSTREAM_ERROR"],
  [Code.DeadlineExceeded, "UPSTREAM_ERROR"],
  [Code.Canceled, "UPSTREAM_ERROR"],
  [Code.Internal, "INTERNAL_ERROR"],
  [Code.InvalidArgument, "INTERNAL_ERROR"],
  [Code.Unauthenticated, "INTERNAL_ERROR"],
])("a call that failed with code %i and no reason is %s", (code, reason) => {
  expect(fromConnectError(new ConnectError("as it went", code)).reason).toBe(reason);
});

test("a refused stream is an upstream error", () => {
  const error = new ConnectError("Stream closed with error code NGHTTP2_REFUSED_STREAM", Code.Internal);
  expect(fromConnectError(error).reason).toBe("UPSTREAM_ERROR");
});

test("invalid names its field", () => {
  expect(invalid("query.cursor", "is not a cursor")).toMatchObject({
    reason: "VALIDATION_ERROR",
    violations: [{ field: "query.cursor", issue: "is not a cursor" }],
  });
});

import { create } from "@bufbuild/protobuf";
import { Code, ConnectError } from "@connectrpc/connect";
import { type ErrorNote, ErrorNoteSchema } from "@sandgate/proto/common/v1/error";
import { BadRequestSchema, ErrorInfoSchema } from "@sandgate/proto/google/rpc/error_details";
import { DomainError, type DomainErrorOptions } from "../base/domain-error.ts";
import { connectCodeOf, isReason } from "../base/reasons.ts";

const domain = "sandgate";
const hidden = "Something went wrong on our side.";

/** Connect's own codes that reveal nothing internal: a call that ended, an unknown method, an invalid or oversized message. */
const passedThrough = new Set<Code>([
  Code.Canceled,
  Code.DeadlineExceeded,
  Code.Unimplemented,
  Code.InvalidArgument,
  Code.ResourceExhausted,
]);

/** True for an error that callers may see as it is; false for a fault, which has to be logged with its cause. */
export function isExpected(error: unknown): boolean {
  if (error instanceof DomainError) return error.reason !== "INTERNAL_ERROR";
  return error instanceof ConnectError && passedThrough.has(error.code);
}

/**
 * The error that a server sends for a thrown one: a DomainError as its Connect code with google.rpc.ErrorInfo, BadRequest and
 * ErrorNote details; anything unexpected as an INTERNAL_ERROR that reveals nothing of it.
 */
export function toConnectError(error: unknown): ConnectError {
  if (error instanceof ConnectError && passedThrough.has(error.code)) return error;
  const known =
    error instanceof DomainError && error.reason !== "INTERNAL_ERROR"
      ? error
      : new DomainError("INTERNAL_ERROR", hidden, { cause: error });
  const details: ConstructorParameters<typeof ConnectError>[3] = [
    { desc: ErrorInfoSchema, value: create(ErrorInfoSchema, { domain, reason: known.reason }) },
  ];
  if (known.violations) {
    const fieldViolations = known.violations.map(({ field, issue }) => ({ field, description: issue }));
    details.push({ desc: BadRequestSchema, value: create(BadRequestSchema, { fieldViolations }) });
  }
  if (known.hint !== undefined || known.retryAfterSeconds !== undefined) {
    const value = create(ErrorNoteSchema, {
      hint: known.hint ?? "",
      retryAfterSeconds: Math.ceil(known.retryAfterSeconds ?? 0),
    });
    details.push({ desc: ErrorNoteSchema, value });
  }
  return new ConnectError(known.message, Code[connectCodeOf(known.reason)], undefined, details, known.cause ?? known);
}

/**
 * The error that a client throws for a failed call: the callee's DomainError if it sent one, UPSTREAM_ERROR if the callee can't be
 * reached, the deadline passed or the call was canceled, and INTERNAL_ERROR otherwise.
 */
export function fromConnectError(error: unknown): DomainError {
  if (error instanceof DomainError) return error;
  if (!(error instanceof ConnectError)) return new DomainError("INTERNAL_ERROR", hidden, { cause: error });
  // An error raised by one of our own client interceptors comes back wrapped.
  if (error.cause instanceof DomainError && error.details.length === 0) return error.cause;
  const info = error.findDetails(ErrorInfoSchema).find((detail) => detail.domain === domain);
  if (info && isReason(info.reason)) {
    const note = error.findDetails(ErrorNoteSchema)[0];
    const violations = error
      .findDetails(BadRequestSchema)
      .flatMap((bad) => bad.fieldViolations.map(({ field, description }) => ({ field, issue: description })));
    return new DomainError(info.reason, error.rawMessage, {
      ...noteOptions(note),
      violations: violations.length > 0 ? violations : undefined,
      cause: error,
    });
  }
  if (isUnreachable(error)) {
    return new DomainError("UPSTREAM_ERROR", "A part of the platform did not respond in time.", { cause: error });
  }
  return new DomainError("INTERNAL_ERROR", hidden, { cause: error });
}

function noteOptions(note: ErrorNote | undefined): DomainErrorOptions {
  return {
    hint: note?.hint || undefined,
    retryAfterSeconds: note?.retryAfterSeconds || undefined,
  };
}

function isTlsFailure(cause: unknown): boolean {
  return cause instanceof Error && "code" in cause && String(cause.code).startsWith("ERR_SSL_");
}

function isUnreachable(error: ConnectError): boolean {
  switch (error.code) {
    case Code.Unavailable:
    case Code.DeadlineExceeded:
    case Code.Canceled:
    case Code.Aborted:
      return true;
    default:
      // How a call fails that starts while a server shuts down (GOAWAY), and one whose client's certificate is refused, which the
      // client learns after it connected; Connect reports both as internal.
      return error.rawMessage.includes("NGHTTP2_REFUSED_STREAM") || isTlsFailure(error.cause);
  }
}

import { create } from "@bufbuild/protobuf";
import { Code, ConnectError } from "@connectrpc/connect";
import { type ErrorNote, ErrorNoteSchema } from "@sandgate/proto/common/v1/error";
import { BadRequestSchema, ErrorInfoSchema } from "@sandgate/proto/google/rpc/error_details";
import { DomainError, type DomainErrorOptions } from "../base/domain-error.ts";
import { connectCodeOf, isReason } from "../base/reasons.ts";

const domain = "sandgate";
const hidden = "Something went wrong on our side.";

/**
 * Codes of Connect's own errors that reveal nothing internal: an ended call, an unknown method, an invalid or oversized
 * message.
 */
const passedThrough = new Set<Code>([
  Code.Canceled,
  Code.DeadlineExceeded,
  Code.Unimplemented,
  Code.InvalidArgument,
  Code.ResourceExhausted,
]);

/**
 * True for an error that callers may see as it is. Every other error is a fault, which has to be logged with its cause.
 */
export function isExpected(error: unknown): boolean {
  if (error instanceof DomainError) return error.reason !== "INTERNAL_ERROR";
  return error instanceof ConnectError && passedThrough.has(error.code);
}

/**
 * Returns the error that a server sends for a thrown one. A DomainError becomes its Connect code with the details
 * google.rpc.ErrorInfo, BadRequest and ErrorNote. Any other error becomes an INTERNAL_ERROR that reveals nothing.
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
  const { hint = "", retryAfterSeconds = 0, callersFault, errno = "" } = known;
  if (hint !== "" || retryAfterSeconds > 0 || callersFault || errno !== "") {
    const value = create(ErrorNoteSchema, {
      hint,
      // An int32: with a larger number the error could not be sent, and the call would stay unanswered.
      retryAfterSeconds: Math.min(Math.ceil(retryAfterSeconds), 2 ** 31 - 1),
      callersFault,
      errno,
    });
    details.push({ desc: ErrorNoteSchema, value });
  }
  return new ConnectError(known.message, Code[connectCodeOf(known.reason)], undefined, details, known.cause ?? known);
}

/**
 * Returns the error that a client throws for a failed call: the callee's DomainError if it sent one, UPSTREAM_ERROR if
 * the callee can't be reached, the deadline passed or the call was canceled, and otherwise INTERNAL_ERROR.
 */
export function fromConnectError(error: unknown): DomainError {
  if (error instanceof DomainError) return error;
  if (!(error instanceof ConnectError)) return new DomainError("INTERNAL_ERROR", hidden, { cause: error });
  // Connect wraps an error of one of our own client interceptors.
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
    return new DomainError("UPSTREAM_ERROR", "A service of the platform did not respond in time.", { cause: error });
  }
  return new DomainError("INTERNAL_ERROR", hidden, { cause: error });
}

function noteOptions(note: ErrorNote | undefined): DomainErrorOptions {
  return {
    hint: note?.hint || undefined,
    retryAfterSeconds: note?.retryAfterSeconds || undefined,
    callersFault: note?.callersFault,
    errno: note?.errno || undefined,
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
      // Connect reports two more failures as internal: a call that starts while a server shuts down (GOAWAY), and one
      // whose client certificate is refused, which the client learns after it has connected.
      return error.rawMessage.includes("NGHTTP2_REFUSED_STREAM") || isTlsFailure(error.cause);
  }
}

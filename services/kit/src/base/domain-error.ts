// Separate from rpc/errors.ts, so that a database's writer thread loads neither Connect nor Protobuf.
import type { Reason } from "./reasons.ts";

/**
 * One invalid field: its name in the request in snake_case ("memory_mb"), or a public path ("header.x-workspace-id").
 */
export interface Violation {
  field: string;
  issue: string;
}

export interface DomainErrorOptions {
  hint?: string | undefined;
  violations?: readonly Violation[] | undefined;
  /** Seconds until the same call may succeed. */
  retryAfterSeconds?: number | undefined;
  /** Something of the caller's own led to it, such as a quota or an image, though the status may be 5xx. */
  callersFault?: boolean | undefined;
  /** What Linux calls the error, if it has a name for it: ENOSPC, EEXIST. */
  errno?: string | undefined;
  /** The cause, for the log alone. It never leaves the process. */
  cause?: unknown;
}

/**
 * The only error that services throw on purpose. Every other error is a bug or a fault and reaches callers as
 * INTERNAL_ERROR.
 */
export class DomainError extends Error {
  readonly reason: Reason;
  readonly hint?: string;
  readonly violations?: readonly Violation[];
  readonly retryAfterSeconds?: number;
  readonly callersFault: boolean;
  readonly errno?: string;

  constructor(reason: Reason, message: string, options: DomainErrorOptions = {}) {
    super(message, options.cause === undefined ? undefined : { cause: options.cause });
    this.name = "DomainError";
    this.reason = reason;
    this.callersFault = options.callersFault ?? false;
    if (options.hint !== undefined) this.hint = options.hint;
    if (options.violations !== undefined) this.violations = options.violations;
    if (options.errno !== undefined) this.errno = options.errno;
    if (options.retryAfterSeconds !== undefined) this.retryAfterSeconds = options.retryAfterSeconds;
  }
}

/** True for a DomainError of this reason. */
export function hasReason(error: unknown, reason: Reason): error is DomainError {
  return error instanceof DomainError && error.reason === reason;
}

/** Returns the message of whatever was thrown. */
export function messageOf(error: unknown): string {
  return error instanceof Error ? error.message : String(error);
}

/** Creates a VALIDATION_ERROR with one violation. */
export function invalid(field: string, issue: string, errno?: string): DomainError {
  return new DomainError("VALIDATION_ERROR", `${field}: ${issue}`, { violations: [{ field, issue }], errno });
}

import type { components } from "./api.ts";

/** The codes of the API's errors. */
export type ErrorCode = components["schemas"]["ErrorBody"]["code"];
/** What is wrong with one field of a request. */
export type ErrorDetail = components["schemas"]["ErrorDetail"];

interface ErrorFields {
  code: string;
  message: string;
  status?: number | undefined;
  hint?: string | null | undefined;
  docsUrl?: string | null | undefined;
  retryable?: boolean | undefined;
  requestId?: string | null | undefined;
  details?: readonly ErrorDetail[] | null | undefined;
  /** How long to wait before a retry. */
  retryAfterMs?: number | undefined;
  cause?: unknown;
}

/** What every failure of the client is, but an abort, which throws the signal's reason. Branch on the class or `code`. */
export class SandgateError extends Error {
  /** One of the API's codes, or one of the client's own (`connection_failed`, `timed_out` …). */
  readonly code: string;
  /** The HTTP status; 0 when there was no answer. */
  readonly status: number;
  /** What is likely to help. */
  readonly hint: string | undefined;
  readonly docsUrl: string | undefined;
  /** Whether an identical request may succeed later. */
  readonly retryable: boolean;
  readonly requestId: string | undefined;
  /** One item for each field that is not valid. */
  readonly details: readonly ErrorDetail[];
  /** What the server said to wait, in milliseconds. */
  readonly retryAfterMs: number | undefined;

  constructor(fields: ErrorFields) {
    super(fields.message, fields.cause === undefined ? undefined : { cause: fields.cause });
    this.name = new.target.name;
    this.code = fields.code;
    this.status = fields.status ?? 0;
    this.hint = fields.hint ?? undefined;
    this.docsUrl = fields.docsUrl ?? undefined;
    this.retryable = fields.retryable ?? false;
    this.requestId = fields.requestId ?? undefined;
    this.details = fields.details ?? [];
    this.retryAfterMs = fields.retryAfterMs;
  }
}

export class Unauthenticated extends SandgateError {}
export class InvalidToken extends SandgateError {}
export class InvalidCredentials extends SandgateError {}
export class EmailNotVerified extends SandgateError {}
export class Forbidden extends SandgateError {}
export class InsufficientRole extends SandgateError {}
export class WorkspaceRequired extends SandgateError {}
export class WorkspaceForbidden extends SandgateError {}
export class WorkspaceNotFound extends SandgateError {}
export class MemberNotFound extends SandgateError {}
export class SandboxNotFound extends SandgateError {}
export class SandboxNameConflict extends SandgateError {}
export class SandboxNotReady extends SandgateError {}
export class ProvisioningFailed extends SandgateError {}
export class ImageNotFound extends SandgateError {}
export class ImageDisabled extends SandgateError {}
export class ImageImmutable extends SandgateError {}
export class RegistryNotFound extends SandgateError {}
export class ApiKeyNotFound extends SandgateError {}
export class ValidationError extends SandgateError {}
export class NotFound extends SandgateError {}
export class Conflict extends SandgateError {}
export class RateLimited extends SandgateError {}
export class InternalError extends SandgateError {}
export class UpstreamError extends SandgateError {}

const classes: Record<ErrorCode, typeof SandgateError> = {
  unauthenticated: Unauthenticated,
  invalid_token: InvalidToken,
  invalid_credentials: InvalidCredentials,
  email_not_verified: EmailNotVerified,
  forbidden: Forbidden,
  insufficient_role: InsufficientRole,
  workspace_required: WorkspaceRequired,
  workspace_forbidden: WorkspaceForbidden,
  workspace_not_found: WorkspaceNotFound,
  member_not_found: MemberNotFound,
  sandbox_not_found: SandboxNotFound,
  sandbox_name_conflict: SandboxNameConflict,
  sandbox_not_ready: SandboxNotReady,
  provisioning_failed: ProvisioningFailed,
  image_not_found: ImageNotFound,
  image_disabled: ImageDisabled,
  image_immutable: ImageImmutable,
  registry_not_found: RegistryNotFound,
  api_key_not_found: ApiKeyNotFound,
  validation_error: ValidationError,
  not_found: NotFound,
  conflict: Conflict,
  rate_limited: RateLimited,
  internal_error: InternalError,
  upstream_error: UpstreamError,
};

/** The server could not be reached, or the connection broke off. Whether the request was carried out is unknown. */
export class ConnectionFailed extends SandgateError {
  constructor(message: string, o: { cause?: unknown; hint?: string } = {}) {
    super({ code: "connection_failed", message, retryable: true, ...o });
  }
}

/** There was no answer in time. */
export class TimedOut extends SandgateError {
  constructor(message: string) {
    super({ code: "timed_out", message, retryable: true, hint: "Allow more time with `timeoutMs`." });
  }
}

/** Settings are missing, or don't fit together. */
export class BadSettings extends SandgateError {
  constructor(message: string, hint?: string) {
    super({ code: "bad_settings", message, hint });
  }
}

/** A command ended with another exit code than 0, and `check` was asked for. */
export class CommandFailed extends SandgateError {
  readonly exitCode: number | null;
  readonly stdout: string;
  readonly stderr: string;

  constructor(message: string, o: { exitCode: number | null; stdout: string; stderr: string; code?: string }) {
    super({ code: o.code ?? "command_failed", message });
    this.exitCode = o.exitCode;
    this.stdout = o.stdout;
    this.stderr = o.stderr;
  }
}

/** A command was ended because its time was up. It has the output so far. */
export class CommandTimedOut extends CommandFailed {
  constructor(message: string, o: { exitCode: number | null; stdout: string; stderr: string }) {
    super(message, { ...o, code: "command_timed_out" });
  }
}

/** Something in the sandbox killed what watched a process, so how it ended is unknown. */
export class ProcessLost extends CommandFailed {
  constructor(o: { stdout: string; stderr: string }) {
    super("The process is lost: something in the sandbox ended what watched it.", {
      ...o,
      exitCode: null,
      code: "process_lost",
    });
  }
}

/** Reads the error that a response tells of. The body is consumed. */
export async function readError(response: Response): Promise<SandgateError> {
  const { status, headers } = response;
  const retryAfter = headers.get("retry-after");
  const seconds = Number(retryAfter ?? Number.NaN);
  const common = {
    status,
    requestId: headers.get("x-request-id"),
    retryAfterMs: Number.isFinite(seconds) ? seconds * 1000 : undefined,
  };
  const body = errorBodyOf(await response.text().catch(() => ""));
  if (!body) {
    // A proxy in between answered.
    return new SandgateError({
      code: `http_${status}`,
      message: `The server answered ${status} ${response.statusText}`.trim(),
      retryable: [429, 502, 503, 504].includes(status),
      ...common,
    });
  }
  const Class = isErrorCode(body.code) ? classes[body.code] : SandgateError;
  const { request_id: requestId, docs_url: docsUrl, ...fields } = body;
  return new Class({ ...fields, ...common, docsUrl, requestId: requestId ?? common.requestId });
}

function isErrorCode(code: string): code is ErrorCode {
  return Object.hasOwn(classes, code);
}

interface SentError {
  code: string;
  message: string;
  hint?: string | null;
  docs_url?: string | null;
  retryable?: boolean;
  request_id?: string | null;
  details?: ErrorDetail[] | null;
}

function errorBodyOf(text: string): SentError | undefined {
  try {
    const { error } = JSON.parse(text) as { error?: SentError };
    return typeof error?.code === "string" ? error : undefined;
  } catch {
    return undefined;
  }
}

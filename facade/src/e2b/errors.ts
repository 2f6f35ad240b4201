import { Code, ConnectError } from "@connectrpc/connect";
import { encodeEnvelope } from "@connectrpc/connect/protocol";
import {
  codeToHttpStatus,
  codeToString,
  contentTypeStreamJson,
  contentTypeUnaryJson,
  endStreamFlag,
  errorToJson,
} from "@connectrpc/connect/protocol-connect";
import type { DomainError } from "@sandgate/kit/base/domain-error";
import { type PublicReason, publicErrors, toPublicReason } from "@sandgate/kit/base/reasons";
import type { FastifyRequest } from "fastify";
import type { ErrorAnswer } from "../pipeline/base/route-rules.ts";
import { toEnvelope } from "../pipeline/errors/envelope.ts";

/** The statuses of E2B's control plane that aren't ours. */
const statuses: Partial<Record<PublicReason, number>> = {
  VALIDATION_ERROR: 400,
  PROVISIONING_FAILED: 500,
  UPSTREAM_ERROR: 503,
};

/** The Connect codes of E2B's envd that aren't those between our services. */
const codes: Partial<Record<PublicReason, Code>> = {
  CONFLICT: Code.FailedPrecondition,
  WORKSPACE_FORBIDDEN: Code.Unauthenticated,
};

/** Of conflicts that the sandbox's system tells of. */
const codesOfErrnos: Readonly<Record<string, Code>> = {
  EACCES: Code.PermissionDenied,
  EEXIST: Code.AlreadyExists,
  EISDIR: Code.InvalidArgument,
  ELOOP: Code.InvalidArgument,
  EMFILE: Code.ResourceExhausted,
  ENAMETOOLONG: Code.InvalidArgument,
  ENOTDIR: Code.InvalidArgument,
  EPERM: Code.PermissionDenied,
  ESRCH: Code.NotFound,
};

/** The statuses of files that the sandbox's system refuses. */
const statusesOfErrnos: Readonly<Record<string, number>> = {
  EACCES: 403,
  EDQUOT: 507,
  EMFILE: 429,
  ENOSPC: 507,
  ENOSYS: 409,
  EPERM: 403,
};

/** What an error says: its message, and what to do, unless that is empty. */
function wordsOf(error: DomainError): string {
  const { message, hint } = toEnvelope(error, { requestId: "", docsUrl: "" }).error;
  if (error.hint === "") return message;
  // The usual hint of a validation error is about a list that isn't here.
  return error.reason === "VALIDATION_ERROR" && error.hint === undefined ? message : `${message} ${hint}`;
}

function headersOf(error: DomainError): Record<string, string> {
  return { "should-retry": String(publicErrors[toPublicReason(error.reason)].retryable) };
}

/** An error of the control plane. */
export function sayControlError(error: DomainError): ErrorAnswer {
  const reason = toPublicReason(error.reason);
  const isOverQuota = reason === "PROVISIONING_FAILED" && error.errno === "EDQUOT";
  const status = isOverQuota ? 429 : (statuses[reason] ?? publicErrors[reason].status);
  return { status, headers: headersOf(error), body: { code: status, message: wordsOf(error) } };
}

/**
 * Whether an error of something in a sandbox says that the sandbox itself can't be used. No conflict of another kind
 * lacks the name that the system has for it.
 */
export function isGone({ reason, errno }: DomainError): boolean {
  return (
    reason === "SANDBOX_NOT_FOUND" || reason === "SANDBOX_NOT_READY" || (reason === "CONFLICT" && errno === undefined)
  );
}

/** What E2B's proxy says of a sandbox that isn't there, and of a port where nobody listens. */
export function sayUnreachable(sandboxName: string, message = "The sandbox was not found"): ErrorAnswer {
  return { status: 502, body: { sandboxId: sandboxName, message, code: 502 } };
}

/** An error of a request for the content of a file. */
export function sayFileError(error: DomainError, request: FastifyRequest): ErrorAnswer {
  if (isGone(error)) return sayUnreachable(request.sandboxName);
  const { errno } = error;
  const ofUser = isAboutUser(error) ? 401 : undefined;
  const ofErrno = errno !== undefined && error.reason === "CONFLICT" ? (statusesOfErrnos[errno] ?? 400) : undefined;
  const { body, headers = {}, status: given } = sayControlError(error);
  const status = ofUser ?? ofErrno ?? (error.reason === "WORKSPACE_FORBIDDEN" ? 401 : given);
  return { status, headers, body: { ...body, code: status } };
}

/** An error of a call of envd that has not begun to be answered. */
export function sayCallError(kind: "unary" | "stream") {
  return (error: DomainError, request: FastifyRequest): ErrorAnswer => {
    if (isGone(error)) return sayUnreachable(request.sandboxName);
    const refusal = toCallError(error);
    const headers = headersOf(error);
    if (kind === "unary") {
      const body = { code: codeToString(refusal.code), message: refusal.rawMessage };
      return {
        status: codeToHttpStatus(refusal.code),
        headers: { ...headers, "content-type": contentTypeUnaryJson },
        body,
      };
    }
    const end = JSON.stringify({ error: errorToJson(refusal, undefined) });
    return {
      status: 200,
      headers: { ...headers, "content-type": contentTypeStreamJson },
      body: encodeEnvelope(endStreamFlag, new TextEncoder().encode(end)),
    };
  };
}

/** An error as Connect has it. */
export function toCallError(error: DomainError): ConnectError {
  return new ConnectError(wordsOf(error), callCodeOf(error));
}

function callCodeOf(error: DomainError): Code {
  if (isAboutUser(error)) return Code.Unauthenticated;
  const reason = toPublicReason(error.reason);
  const { errno } = error;
  const ofErrno = errno !== undefined && reason === "CONFLICT" ? codesOfErrnos[errno] : undefined;
  return ofErrno ?? codes[reason] ?? Code[publicErrors[reason].connect];
}

/** The sandbox has no such user. */
export function isAboutUser({ reason, violations }: DomainError): boolean {
  return reason === "VALIDATION_ERROR" && violations?.some(({ field }) => /\buser(?:name)?$/.test(field)) === true;
}

declare module "fastify" {
  interface FastifyRequest {
    /** What a request to a sandbox calls it. */
    sandboxName: string;
  }
}

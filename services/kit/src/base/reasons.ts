import type { Code } from "@connectrpc/connect";

interface PublicError {
  /** The Connect code between services. */
  connect: keyof typeof Code;
  /** The HTTP status in the public API. */
  status: number;
  /** Whether an identical retry may succeed. */
  retryable: boolean;
  /** What the error means, for the reference. */
  meaning: string;
  /** What to do, unless whoever throws it says something more specific. */
  hint: string;
}

interface InternalError {
  connect: keyof typeof Code;
  /** The public error that clients get instead. */
  shownAs: PublicReason;
}

/**
 * The errors of the public API. Their codes are these names in lower case. A new error is an entry here and in the list
 * of every route that answers with it.
 */
export const publicErrors = {
  UNAUTHENTICATED: {
    connect: "Unauthenticated",
    status: 401,
    retryable: false,
    meaning: "The bearer token is missing.",
    hint: "Send `Authorization: Bearer <token>` with an API token or a session access token.",
  },
  INVALID_TOKEN: {
    connect: "Unauthenticated",
    status: 401,
    retryable: false,
    meaning: "The token is unknown, expired or revoked.",
    hint: "Refresh the session or sign in again. Replace an API token with a new one.",
  },
  INVALID_CREDENTIALS: {
    connect: "Unauthenticated",
    status: 401,
    retryable: false,
    meaning: "The user name or the password is wrong.",
    hint: "Check both. After several failures, wait a minute before you try again.",
  },
  EMAIL_NOT_VERIFIED: {
    connect: "PermissionDenied",
    status: 403,
    retryable: false,
    meaning: "The e-mail address was not verified before the sign-in.",
    hint: "Follow the link in the verification mail, or ask for a new one with POST /auth/resend-verification.",
  },
  FORBIDDEN: {
    connect: "PermissionDenied",
    status: 403,
    retryable: false,
    meaning: "The credential is valid but does not give access.",
    hint: "Use a credential that may do this. API tokens can be managed only with a session access token.",
  },
  INSUFFICIENT_ROLE: {
    connect: "PermissionDenied",
    status: 403,
    retryable: false,
    meaning: "The caller's role in the workspace is too low.",
    hint: "Ask an admin or an owner of the workspace to do it, or to raise your role.",
  },
  WORKSPACE_REQUIRED: {
    connect: "InvalidArgument",
    status: 400,
    retryable: false,
    meaning: "The `X-Workspace-Id` header is missing.",
    hint: "Send `X-Workspace-Id` with the id of one of your workspaces; GET /workspaces lists them.",
  },
  WORKSPACE_FORBIDDEN: {
    connect: "PermissionDenied",
    status: 403,
    retryable: false,
    meaning: "The caller is not a member of the workspace, or the API token is bound to another one.",
    hint: "Check the workspace's id against GET /workspaces, or ask one of its admins to add you.",
  },
  WORKSPACE_NOT_FOUND: {
    connect: "NotFound",
    status: 404,
    retryable: false,
    meaning: "The workspace does not exist.",
    hint: "Check the workspace's id against GET /workspaces; it may have been deleted.",
  },
  MEMBER_NOT_FOUND: {
    connect: "NotFound",
    status: 404,
    retryable: false,
    meaning: "The workspace has no such member, or no verified user has that name.",
    hint: "List the members with GET /workspaces/{workspace_id}/members. A new member must have a verified e-mail address.",
  },
  SANDBOX_NOT_FOUND: {
    connect: "NotFound",
    status: 404,
    retryable: false,
    meaning: "The workspace has no sandbox with that id or name that the caller may access.",
    hint: "Check the id or name against GET /sandboxes, and that X-Workspace-Id names its workspace.",
  },
  SANDBOX_NAME_CONFLICT: {
    connect: "AlreadyExists",
    status: 409,
    retryable: false,
    meaning: "A live sandbox in the workspace already has that name.",
    hint: "Choose another name, leave it out to have one generated, or delete the sandbox that has it.",
  },
  SANDBOX_NOT_READY: {
    connect: "FailedPrecondition",
    status: 409,
    retryable: true,
    meaning: "The sandbox is still provisioning.",
    hint: "Wait with POST /sandboxes/wait, or try again a little later.",
  },
  PROVISIONING_FAILED: {
    connect: "FailedPrecondition",
    status: 502,
    retryable: true,
    meaning: "The sandbox could not be provisioned.",
    hint: "Check the image, its registry credential and the workspace's quota, then provision again.",
  },
  IMAGE_NOT_FOUND: {
    connect: "NotFound",
    status: 404,
    retryable: false,
    meaning: "The workspace has no such image.",
    hint: "Check the id against GET /sandbox-images.",
  },
  IMAGE_DISABLED: {
    connect: "FailedPrecondition",
    status: 400,
    retryable: false,
    meaning: "The image is disabled.",
    hint: "Enable it with PUT /sandbox-images/{image_id}, or choose one from GET /sandbox-images?enabled_only=true.",
  },
  IMAGE_IMMUTABLE: {
    connect: "PermissionDenied",
    status: 403,
    retryable: false,
    meaning: "Global default images are read-only.",
    hint: "Register your own image with POST /sandbox-images and change that one.",
  },
  REGISTRY_NOT_FOUND: {
    connect: "NotFound",
    status: 404,
    retryable: false,
    meaning: "The workspace has no such registry credential.",
    hint: "Check the id against GET /registries, or create a credential with POST /registries.",
  },
  API_KEY_NOT_FOUND: {
    connect: "NotFound",
    status: 404,
    retryable: false,
    meaning: "The user has no such API token.",
    hint: "Check the id against GET /api-tokens; it may have been revoked already.",
  },
  VALIDATION_ERROR: {
    connect: "InvalidArgument",
    status: 422,
    retryable: false,
    meaning: "Fields of the request are not valid; `error.details` names them.",
    hint: "Correct the fields that `details` names and send the request again.",
  },
  NOT_FOUND: {
    connect: "NotFound",
    status: 404,
    retryable: false,
    meaning: "The resource or the route does not exist.",
    hint: "Check the method and the path against the reference at /docs.",
  },
  CONFLICT: {
    connect: "AlreadyExists",
    status: 409,
    retryable: false,
    meaning: "The resource already exists or is in the wrong state.",
    hint: "Read the current state of the resource and decide from there.",
  },
  RATE_LIMITED: {
    connect: "ResourceExhausted",
    status: 429,
    retryable: true,
    meaning: "Too many requests.",
    hint: "Wait for the number of seconds in the Retry-After header before the next request.",
  },
  INTERNAL_ERROR: {
    connect: "Internal",
    status: 500,
    retryable: true,
    meaning: "Something went wrong on the server's side.",
    hint: "Retry with increasing delays. If it persists, report the request id.",
  },
  UPSTREAM_ERROR: {
    connect: "Unavailable",
    status: 502,
    retryable: true,
    meaning: "Something the request depends on failed or did not answer in time.",
    hint: "Retry with increasing delays.",
  },
} satisfies Record<string, PublicError>;

/** The errors that clients never see. */
export const internalErrors = {
  IMAGE_PULL_UNAUTHORIZED: { connect: "PermissionDenied", shownAs: "PROVISIONING_FAILED" },
  IMAGE_NOT_FOUND_IN_REGISTRY: { connect: "NotFound", shownAs: "PROVISIONING_FAILED" },
  ISOLATION_UNAVAILABLE: { connect: "FailedPrecondition", shownAs: "PROVISIONING_FAILED" },
  REGISTRY_UNREACHABLE: { connect: "Unavailable", shownAs: "UPSTREAM_ERROR" },
  RUNTIME_UNAVAILABLE: { connect: "Unavailable", shownAs: "UPSTREAM_ERROR" },
  STORAGE_FULL: { connect: "Unavailable", shownAs: "UPSTREAM_ERROR" },
  DRAINING: { connect: "Unavailable", shownAs: "UPSTREAM_ERROR" },
  CALLER_NOT_ALLOWED: { connect: "PermissionDenied", shownAs: "INTERNAL_ERROR" },
} satisfies Record<string, InternalError>;

export type PublicReason = keyof typeof publicErrors;
type InternalReason = keyof typeof internalErrors;

/** Why a call failed: a closed set. */
export type Reason = PublicReason | InternalReason;

const all: Record<Reason, PublicError | InternalError> = { ...publicErrors, ...internalErrors };

export function isReason(text: string): text is Reason {
  return Object.hasOwn(all, text);
}

function isPublic(text: string): text is PublicReason {
  return Object.hasOwn(publicErrors, text);
}

export const publicReasons: readonly PublicReason[] = Object.keys(publicErrors).filter(isPublic);

/** Returns the error that clients get for a reason. */
export function toPublicReason(reason: Reason): PublicReason {
  return isPublic(reason) ? reason : internalErrors[reason].shownAs;
}

/** Returns the name of a reason's Connect code. */
export function connectCodeOf(reason: Reason): keyof typeof Code {
  return all[reason].connect;
}

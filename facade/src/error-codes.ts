import { DomainError, type Reason, type Violation } from "@sandgate/kit/base/domain-error";

export interface ErrorKind {
  status: number;
  /** An identical retry may succeed. */
  retryable: boolean;
  /** What it means, for the reference. */
  meaning: string;
  /** The next step where the cause gives no better one. */
  hint: string;
}

/** The public codes of spec 7.3. */
export const errorKinds = {
  unauthenticated: {
    status: 401,
    retryable: false,
    meaning: "The bearer token is missing.",
    hint: "Send `Authorization: Bearer <token>` with an API token or a session access token.",
  },
  invalid_token: {
    status: 401,
    retryable: false,
    meaning: "The token is unknown, expired or revoked.",
    hint: "Refresh the session or sign in again; an API token has to be replaced by a new one.",
  },
  invalid_credentials: {
    status: 401,
    retryable: false,
    meaning: "The user name or the password is wrong.",
    hint: "Check both. After several failures wait a minute before you try again.",
  },
  email_not_verified: {
    status: 403,
    retryable: false,
    meaning: "The e-mail address was not verified before the sign-in.",
    hint: "Follow the link in the verification mail, or ask for a new one with POST /auth/resend-verification.",
  },
  forbidden: {
    status: 403,
    retryable: false,
    meaning: "The credential is valid but does not give access.",
    hint: "Use a credential that may do this; API tokens are managed with a session access token only.",
  },
  insufficient_role: {
    status: 403,
    retryable: false,
    meaning: "The caller's role in the workspace is too low.",
    hint: "Ask an admin or an owner of the workspace to do it, or to raise your role.",
  },
  workspace_required: {
    status: 400,
    retryable: false,
    meaning: "The `X-Workspace-Id` header is missing.",
    hint: "Send `X-Workspace-Id` with the id of one of your workspaces; GET /workspaces lists them.",
  },
  workspace_forbidden: {
    status: 403,
    retryable: false,
    meaning: "The caller is not a member of the workspace, or the API token is bound to another one.",
    hint: "Check the workspace's id against GET /workspaces, or ask an admin of it to add you.",
  },
  workspace_not_found: {
    status: 404,
    retryable: false,
    meaning: "The workspace does not exist.",
    hint: "Check the workspace's id against GET /workspaces; it may have been deleted.",
  },
  member_not_found: {
    status: 404,
    retryable: false,
    meaning: "The workspace has no such member, or there is no verified user of that name.",
    hint: "List the members with GET /workspaces/{workspace_id}/members; a user has to verify the e-mail address first.",
  },
  sandbox_not_found: {
    status: 404,
    retryable: false,
    meaning: "The workspace has no sandbox with that id or name that the caller may access.",
    hint: "Check the id or name against GET /sandboxes, and that X-Workspace-Id names its workspace.",
  },
  sandbox_name_conflict: {
    status: 409,
    retryable: false,
    meaning: "A live sandbox of the workspace has that name.",
    hint: "Choose another name, leave it out to have one made up, or delete the sandbox that has it.",
  },
  sandbox_not_ready: {
    status: 409,
    retryable: true,
    meaning: "The sandbox is still provisioning.",
    hint: "Wait with POST /sandboxes/wait, or ask again a little later.",
  },
  provisioning_failed: {
    status: 502,
    retryable: true,
    meaning: "The sandbox could not be provisioned.",
    hint: "Check the image, its registry credential and the workspace's quota, then provision again.",
  },
  image_not_found: {
    status: 404,
    retryable: false,
    meaning: "The workspace has no such image.",
    hint: "Check the id against GET /sandbox-images.",
  },
  image_disabled: {
    status: 400,
    retryable: false,
    meaning: "The image is disabled.",
    hint: "Enable it with PUT /sandbox-images/{image_id}, or choose one from GET /sandbox-images?enabled_only=true.",
  },
  image_immutable: {
    status: 403,
    retryable: false,
    meaning: "Global default images are read-only.",
    hint: "Register an image of your own with POST /sandbox-images and change that.",
  },
  registry_not_found: {
    status: 404,
    retryable: false,
    meaning: "The workspace has no such registry credential.",
    hint: "Check the id against GET /registries, or create a credential with POST /registries.",
  },
  api_key_not_found: {
    status: 404,
    retryable: false,
    meaning: "The user has no such API token.",
    hint: "Check the id against GET /api-tokens; it may have been revoked already.",
  },
  validation_error: {
    status: 422,
    retryable: false,
    meaning: "Fields of the request are not valid; `error.details` names them.",
    hint: "Correct the fields that `details` names and send the request again.",
  },
  not_found: {
    status: 404,
    retryable: false,
    meaning: "The resource or the route does not exist.",
    hint: "Check the method and the path against the reference at /docs.",
  },
  conflict: {
    status: 409,
    retryable: false,
    meaning: "The resource already exists or is in the wrong state.",
    hint: "Read the resource's present state and decide from that.",
  },
  rate_limited: {
    status: 429,
    retryable: true,
    meaning: "Too many requests.",
    hint: "Wait for the seconds in the Retry-After header before the next request.",
  },
  internal_error: {
    status: 500,
    retryable: true,
    meaning: "Something went wrong on the server's side.",
    hint: "Retry with a growing delay; if it stays, report the request id.",
  },
  upstream_error: {
    status: 502,
    retryable: true,
    meaning: "Something the request depends on failed or did not answer in time.",
    hint: "Retry with a growing delay.",
  },
} as const satisfies Record<string, ErrorKind>;

export type ErrorCode = keyof typeof errorKinds;

/** What the reasons that stay inside the platform look like from outside. */
const internalReasons: Partial<Record<Reason, ErrorCode>> = {
  IMAGE_PULL_UNAUTHORIZED: "provisioning_failed",
  IMAGE_NOT_FOUND_IN_REGISTRY: "provisioning_failed",
  ISOLATION_UNAVAILABLE: "provisioning_failed",
  REGISTRY_UNREACHABLE: "upstream_error",
  RUNTIME_UNAVAILABLE: "upstream_error",
  DRAINING: "upstream_error",
  CALLER_NOT_ALLOWED: "internal_error",
};

function isErrorCode(text: string): text is ErrorCode {
  return Object.hasOwn(errorKinds, text);
}

export function codeOf(reason: Reason): ErrorCode {
  const code = reason.toLowerCase();
  return isErrorCode(code) ? code : (internalReasons[reason] ?? "internal_error");
}

/** Spec 7.1. */
export interface ErrorEnvelope {
  error: {
    code: ErrorCode;
    message: string;
    hint: string;
    docs_url: string;
    retryable: boolean;
    request_id: string;
    details?: Violation[];
  };
  /** Deprecated copy of the message. */
  detail: string;
}

/** The message of every internal_error: what happened stays in the log. */
const hiddenMessage = "Something went wrong on our side.";

/** The envelope of an error. `docsUrl` is the address of the reference, which has an anchor per code. */
export function toEnvelope(error: DomainError, o: { requestId: string; docsUrl: string }): ErrorEnvelope {
  const code = codeOf(error.reason);
  const kind = errorKinds[code];
  const message = code === "internal_error" ? hiddenMessage : error.message;
  return {
    error: {
      code,
      message,
      hint: (code !== "internal_error" && error.hint) || kind.hint,
      docs_url: `${o.docsUrl}#${code}`,
      retryable: kind.retryable,
      request_id: o.requestId,
      ...(code === "validation_error" && { details: [...(error.violations ?? [])] }),
    },
    detail: message,
  };
}

/** A validation_error whose violations name public paths ("body.memory_mb"), one a field. */
export function validationError(violations: readonly Violation[]): DomainError {
  const [first] = violations;
  const message =
    first && violations.length === 1
      ? `${first.field} ${first.issue}.`
      : `${violations.length} fields of the request are not valid: ${violations
          .slice(0, 5)
          .map(({ field }) => field)
          .join(", ")}${violations.length > 5 ? ", …" : ""}.`;
  return new DomainError("VALIDATION_ERROR", message, { violations });
}

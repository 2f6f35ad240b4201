import { DomainError, messageOf } from "@sandgate/kit/base/domain-error";
import { errors as jose } from "jose";
import { AuthorizationResponseError, ClientError, ResponseBodyError } from "openid-client";

/** The errors of OpenID Connect and OAuth for a code that is unknown, used or expired. */
const badCode = new Set(["invalid_grant", "bad_verification_code"]);
/** Codes of openid-client and jose for a response, a token or a key that isn't what it should be. */
const failedChecks = new Set([
  "OAUTH_INVALID_RESPONSE",
  "OAUTH_JWT_CLAIM_COMPARISON_FAILED",
  "OAUTH_JWT_TIMESTAMP_CHECK_FAILED",
  "OAUTH_UNSUPPORTED_OPERATION",
  jose.JWKSNoMatchingKey.code,
  jose.JWKSMultipleMatchingKeys.code,
  jose.JWSSignatureVerificationFailed.code,
  jose.JWSInvalid.code,
  jose.JOSENotSupported.code,
]);

/**
 * What a failure means to the user. The message is for the log: of what was sent and received it contains only an error
 * code.
 */
export function toProviderError(cause: unknown): DomainError {
  if (cause instanceof DomainError) return cause;
  if (cause instanceof AuthorizationResponseError && cause.error === "access_denied") {
    return new DomainError("FORBIDDEN", "The sign-in was cancelled at the provider.", { cause });
  }
  const isBadCode = cause instanceof ResponseBodyError && badCode.has(cause.error);
  const failedCheck =
    (cause instanceof ClientError || cause instanceof jose.JOSEError) && failedChecks.has(cause.code ?? "");
  if (isBadCode || failedCheck) {
    return new DomainError("INVALID_TOKEN", `The provider's response is not valid: ${describe(cause)}.`, { cause });
  }
  return new DomainError("UPSTREAM_ERROR", `The provider failed: ${describe(cause)}.`, { cause });
}

function describe(cause: unknown): string {
  const isCoded = cause instanceof ResponseBodyError || cause instanceof AuthorizationResponseError;
  return isCoded ? `${cause.message} (${cause.error})` : messageOf(cause);
}

import { DomainError, type Violation } from "@sandgate/kit/base/domain-error";
import { type PublicReason, publicErrors, toPublicReason } from "@sandgate/kit/base/reasons";

/** The body of every error response. */
interface ErrorEnvelope {
  error: {
    code: string;
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

/** The code of a reason in the public API. */
export function codeOf(reason: PublicReason): string {
  return reason.toLowerCase();
}

/** The message of every INTERNAL_ERROR. Its cause is only logged. */
const hiddenMessage = "Something went wrong on our side.";

/** The envelope of an error. `docsUrl` is the page of error codes, which has an anchor for each. */
export function toEnvelope(error: DomainError, o: { requestId: string; docsUrl: string }): ErrorEnvelope {
  const reason = toPublicReason(error.reason);
  const code = codeOf(reason);
  const { hint, retryable } = publicErrors[reason];
  const hidden = reason === "INTERNAL_ERROR";
  const message = hidden ? hiddenMessage : error.message;
  return {
    error: {
      code,
      message,
      hint: (!hidden && error.hint) || hint,
      docs_url: `${o.docsUrl}#${code}`,
      retryable,
      request_id: o.requestId,
      ...((reason === "VALIDATION_ERROR" || error.violations) && { details: [...(error.violations ?? [])] }),
    },
    detail: message,
  };
}

/** A VALIDATION_ERROR whose violations name public paths ("body.memory_mb"), one for each field. */
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

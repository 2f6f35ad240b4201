import { DomainError } from "@sandgate/kit/base/domain-error";
import { toPublicReason } from "@sandgate/kit/base/reasons";
import { codeOf } from "../errors/envelope.ts";
import type { LiveRequest } from "./live-requests.ts";

/**
 * Why a stream or a WebSocket ends that has begun, in a word for its client: by what ended it, otherwise by what failed.
 */
export function endReasonOf({ endedBy }: Pick<LiveRequest, "endedBy">, error?: unknown): string {
  const reason = endedBy?.reason ?? (error instanceof DomainError ? error.reason : "INTERNAL_ERROR");
  if (reason === "DRAINING") return "draining";
  const shown = toPublicReason(reason);
  // Once it has begun, nothing else is in the wrong state.
  return shown === "CONFLICT" ? "sandbox_stopped" : codeOf(shown);
}

import type { Cursor } from "@sandgate/kit/base/page";
import type { StagedEvent } from "@sandgate/kit/events/outbox";
import type { IdempotencyRecord } from "@sandgate/kit/storage/idempotency-record";
import type { ApiToken, NewApiToken, VerifiedApiToken } from "../domain/api-tokens.ts";

export interface ApiTokens {
  /**
   * Refuses a session that has ended, and a user who has as many as a user may have (`hasAllApiTokens`). A token that is
   * refused consumes nothing of the notice's budget.
   */
  create(
    token: NewApiToken,
    maxTokens: number,
    record: IdempotencyRecord | undefined,
    events: readonly StagedEvent[],
  ): Promise<"done" | "too_many" | "session_ended">;
  /** Undefined for an unknown or revoked token and for a disabled user's; one that has expired is found. */
  find(tokenHash: Uint8Array): Promise<VerifiedApiToken | undefined>;
  /** The same by the token's id. */
  findById(tokenId: string): Promise<VerifiedApiToken | undefined>;
  /** Up to `limit` tokens of the user after `before`, newest first. */
  list(userId: string, limit: number, before: Cursor | undefined): Promise<ApiToken[]>;
  /** False when the user has no such token. */
  revoke(
    userId: string,
    tokenId: string,
    events: readonly StagedEvent[],
    record: IdempotencyRecord | undefined,
  ): Promise<boolean>;
  /** Revokes all tokens of the user. */
  revokeAll(userId: string, events: readonly StagedEvent[]): Promise<void>;
  /** Stores when tokens were last used; a stored later time stays. */
  recordUses(uses: readonly { id: string; usedAt: Date }[]): Promise<void>;
}

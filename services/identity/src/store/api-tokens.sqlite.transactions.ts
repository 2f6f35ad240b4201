import type { StagedEvent } from "@sandgate/kit/events/outbox";
import type { IdempotencyRecord } from "@sandgate/kit/storage/idempotency-record";
import type { Transaction, Transactions } from "@sandgate/kit/storage/sqlite";
import { hasAllApiTokens, type NewApiToken } from "../domain/api-tokens.ts";

function createApiToken(
  tx: Transaction,
  token: NewApiToken,
  maxTokens: number,
  record: IdempotencyRecord | undefined,
  events: readonly StagedEvent[],
): "done" | "too_many" {
  const held = tx.db.all("SELECT 1 FROM api_tokens WHERE user_id = ? LIMIT ?", token.userId, maxTokens).length;
  if (hasAllApiTokens(held, maxTokens)) return "too_many";
  tx.keepIdempotencyRecord(record);
  tx.publish(events);
  tx.db.run(
    `INSERT INTO api_tokens (id, user_id, token_hash, description, hint, workspace_id, role, expires_at, created_at)
     VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?)`,
    token.id,
    token.userId,
    token.tokenHash,
    token.description,
    token.hint,
    token.workspaceId,
    token.role,
    token.expiresAt,
    token.createdAt,
  );
  return "done";
}

function revokeApiToken(
  tx: Transaction,
  userId: string,
  tokenId: string,
  events: readonly StagedEvent[],
  record: IdempotencyRecord | undefined,
): boolean {
  if (tx.db.run("DELETE FROM api_tokens WHERE id = ? AND user_id = ?", tokenId, userId) === 0) return false;
  tx.keepIdempotencyRecord(record);
  tx.publish(events);
  return true;
}

function recordApiTokenUses(tx: Transaction, uses: readonly { id: string; usedAt: Date }[]): void {
  for (const { id, usedAt } of uses) {
    tx.db.run(
      "UPDATE api_tokens SET last_used_at = ? WHERE id = ? AND (last_used_at IS NULL OR last_used_at < ?)",
      usedAt,
      id,
      usedAt,
    );
  }
}

export const apiTokenTransactions = { createApiToken, revokeApiToken, recordApiTokenUses } satisfies Transactions;

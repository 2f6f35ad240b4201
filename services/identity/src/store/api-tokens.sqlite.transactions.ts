import type { Transaction, Transactions } from "@sandgate/kit/storage/sqlite";
import { hasAllApiTokens } from "../domain/api-tokens.ts";
import type { ApiTokens } from "./api-tokens.ts";
import { addMail } from "./mails.sqlite.transactions.ts";
import { consumeEach } from "./rate-counters.sqlite.transactions.ts";
import { insert, type TransactionOf } from "./transaction.sqlite.ts";

/** Returns how many it revoked. */
export function revokeApiTokensOf(tx: Transaction, userId: string): number {
  return tx.db.run("DELETE FROM api_tokens WHERE user_id = ?", userId);
}

const createApiToken: TransactionOf<ApiTokens["create"]> = (tx, token, maxTokens, record, events) => {
  const { id, userId, tokenHash, sessionId, description, hint, workspaceId, expiresAt, createdAt } = token;
  const made = tx.db.get<{ second_factor: number; ended_at: number | null }>(
    "SELECT second_factor, ended_at FROM sessions WHERE id = ? AND user_id = ?",
    sessionId,
    userId,
  );
  if (made && made.ended_at !== null) return "session_ended";
  const held = tx.db.all("SELECT 1 FROM api_tokens WHERE user_id = ? LIMIT ?", userId, maxTokens).length;
  if (hasAllApiTokens(held, maxTokens)) return "too_many";
  tx.keepIdempotencyRecord(record);
  tx.publish(events);
  const about = { description, hint, workspace_id: workspaceId, second_factor: made?.second_factor ?? 0 };
  const limits = { role: token.role, permissions: token.permissions && JSON.stringify(token.permissions) };
  const times = { expires_at: expiresAt, created_at: createdAt };
  insert(tx, "api_tokens", { id, user_id: userId, token_hash: tokenHash, ...about, ...limits, ...times });
  if (token.notice && !consumeEach(tx, [token.notice.budget], createdAt)) {
    addMail(tx, userId, token.notice.mail, createdAt);
  }
  return "done";
};

const revokeApiToken: TransactionOf<ApiTokens["revoke"]> = (tx, userId, tokenId, events, record) => {
  if (tx.db.run("DELETE FROM api_tokens WHERE id = ? AND user_id = ?", tokenId, userId) === 0) return false;
  tx.keepIdempotencyRecord(record);
  tx.publish(events);
  return true;
};

const revokeApiTokens: TransactionOf<ApiTokens["revokeAll"]> = (tx, userId, events) => {
  if (revokeApiTokensOf(tx, userId) > 0) tx.publish(events);
};

const recordApiTokenUses: TransactionOf<ApiTokens["recordUses"]> = (tx, uses) => {
  for (const { id, usedAt } of uses) {
    tx.db.run("UPDATE api_tokens SET last_used_at = max(coalesce(last_used_at, 0), ?) WHERE id = ?", usedAt, id);
  }
};

export const apiTokenTransactions = {
  createApiToken,
  revokeApiToken,
  revokeApiTokens,
  recordApiTokenUses,
} satisfies Transactions;

import { addMs } from "@sandgate/kit/base/time";
import type { Transactions } from "@sandgate/kit/storage/sqlite";
import { keptMs } from "../domain/retention.ts";
import type { Expiry } from "./store.ts";
import type { TransactionOf } from "./transaction.sqlite.ts";

/** What is deleted: the kind says how long after the time that the condition compares with `?`. */
const kinds: readonly [kind: keyof typeof keptMs, table: string, condition: string][] = [
  ["verifications", "verifications", "expires_at <= ?"],
  ["passwordResets", "password_resets", "expires_at <= ?"],
  ["ssoAttempts", "sso_attempts", "expires_at <= ?"],
  ["pendingSecondFactors", "second_factors", "expires_at <= ?"],
  ["sentMails", "mails", "due_at IS NULL AND created_at < ?"],
  ["unsentMails", "mails", "due_at IS NOT NULL AND created_at < ?"],
  ["refreshTokens", "refresh_tokens", "expires_at < ?"],
  ["sessions", "sessions", "ended_at < ?"],
  ["sessions", "sessions", "idle_at < ?"],
  ["apiTokens", "api_tokens", "expires_at < ?"],
  ["requestWindows", "request_windows", "ends_at <= ?"],
  ["knownNetworks", "known_networks", "seen_at <= ?"],
  ["slotLeases", "held_slots", "ends_at <= ?"],
];

const sweep: TransactionOf<Expiry["sweep"]> = (tx, now, limit) => {
  let deleted = 0;
  for (const [kind, table, condition] of kinds) {
    deleted += tx.db.run(
      `DELETE FROM ${table} WHERE rowid IN (SELECT rowid FROM ${table} WHERE ${condition} LIMIT ?)`,
      addMs(now, -keptMs[kind]),
      limit,
    );
  }
  return deleted;
};

export const expiryTransactions = { sweep } satisfies Transactions;

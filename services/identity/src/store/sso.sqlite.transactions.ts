import type { Transaction, Transactions } from "@sandgate/kit/storage/sqlite";
import { addMail } from "./mails.sqlite.ts";
import { setPassword } from "./passwords.sqlite.ts";
import type { ExternalIdentity, FirstSignIn, ResolvedUser, SsoAttempt } from "./sso.ts";

function addSsoAttempt(tx: Transaction, attempt: SsoAttempt): void {
  tx.db.run(
    "INSERT INTO sso_attempts (state_hash, browser_hash, provider, redirect_uri, expires_at) VALUES (?, ?, ?, ?, ?)",
    attempt.stateHash,
    attempt.browserHash,
    attempt.provider,
    attempt.redirectUri,
    attempt.expiresAt,
  );
}

function takeSsoAttempt(
  tx: Transaction,
  { stateHash, browserHash, provider }: Pick<SsoAttempt, "stateHash" | "browserHash" | "provider">,
  now: Date,
): { redirectUri: string } | undefined {
  const taken = tx.db.get<{ redirect_uri: string }>(
    `DELETE FROM sso_attempts WHERE state_hash = ? AND browser_hash = ? AND provider = ? AND expires_at > ?
     RETURNING redirect_uri`,
    stateHash,
    browserHash,
    provider,
    now,
  );
  return taken && { redirectUri: taken.redirect_uri };
}

function resolveExternalUser(
  tx: Transaction,
  { issuer, subject, name }: ExternalIdentity,
  first: FirstSignIn,
  now: Date,
): ResolvedUser {
  const linked = tx.db.get<{ id: string }>(
    `SELECT u.id FROM external_identities i JOIN users u ON u.id = i.user_id WHERE i.issuer = ? AND i.subject = ?`,
    issuer,
    subject,
  );
  if (linked) return { userId: linked.id, endedSessionIds: [] };
  if (!name) return "email_not_verified";
  const holder = tx.db.get<{ id: string; verified_at: number | null }>(
    "SELECT id, verified_at FROM users WHERE username_key = ?",
    name.usernameKey,
  );
  if (holder && holder.id !== first.holder?.id) return "changed";
  const userId = holder?.id ?? first.created?.id;
  if (userId === undefined) return "unknown";
  // The version before this one deletes users without their links.
  tx.db.run(
    `INSERT INTO external_identities (issuer, subject, user_id, created_at) VALUES (?, ?, ?, ?)
     ON CONFLICT DO UPDATE SET user_id = excluded.user_id, created_at = excluded.created_at`,
    issuer,
    subject,
    userId,
    now,
  );
  if (holder && first.holder) {
    addMail(tx, userId, first.holder.noticeMail, now);
    tx.publish(first.holder.events);
    if (holder.verified_at !== null) return { userId, endedSessionIds: [] };
    tx.db.run("UPDATE users SET verified_at = ?, version = version + 1 WHERE id = ?", now, userId);
    return { userId, endedSessionIds: setPassword(tx, userId, null, now) };
  }
  tx.db.run(
    `INSERT INTO users (id, username, username_key, verified_at, operator, version, created_at)
     VALUES (?, ?, ?, ?, 0, 1, ?)`,
    userId,
    name.username,
    name.usernameKey,
    now,
    now,
  );
  tx.publish(first.created?.events ?? []);
  return { userId, endedSessionIds: [] };
}

/** What the writer thread runs; `SsoStore` says what each one means. */
export const ssoTransactions = { addSsoAttempt, takeSsoAttempt, resolveExternalUser } satisfies Transactions;

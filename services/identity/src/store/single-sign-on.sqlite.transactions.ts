import type { Transaction, Transactions } from "@sandgate/kit/storage/sqlite";
import {
  decideExternalUser,
  type ExternalIdentity,
  type ExternalUserChange,
  type FirstSignIn,
  type ResolvedUser,
  type SsoAttempt,
} from "../domain/single-sign-on.ts";
import { addMail } from "./mails.sqlite.transactions.ts";
import { setPassword } from "./passwords.sqlite.transactions.ts";
import { insertUser, markVerified, readAccount } from "./users.sqlite.transactions.ts";

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
  return tx.db.get<{ redirectUri: string }>(
    `DELETE FROM sso_attempts WHERE state_hash = ? AND browser_hash = ? AND provider = ? AND expires_at > ?
     RETURNING redirect_uri AS redirectUri`,
    stateHash,
    browserHash,
    provider,
    now,
  );
}

function readLinkedUser(tx: Transaction, { issuer, subject }: ExternalIdentity): string | undefined {
  const linked = tx.db.get<{ id: string }>(
    "SELECT user_id AS id FROM external_identities WHERE issuer = ? AND subject = ?",
    issuer,
    subject,
  );
  return linked?.id;
}

function resolveExternalUser(tx: Transaction, identity: ExternalIdentity, first: FirstSignIn, now: Date): ResolvedUser {
  const linkedUserId = readLinkedUser(tx, identity);
  const holder = identity.name && readAccount(tx.db, identity.name)?.user;
  const decided = decideExternalUser({ linkedUserId, holder }, identity, first, now);
  if (typeof decided === "string") return decided;
  const { userId, change } = decided;
  return { userId, endedSessionIds: change ? linkUser(tx, identity, change, now) : [] };
}

function linkUser(
  tx: Transaction,
  { issuer, subject }: ExternalIdentity,
  { userId, created, takesOver, noticeMail, events }: ExternalUserChange,
  now: Date,
): string[] {
  tx.db.run(
    "INSERT INTO external_identities (issuer, subject, user_id, created_at) VALUES (?, ?, ?, ?)",
    issuer,
    subject,
    userId,
    now,
  );
  if (created) insertUser(tx, created);
  if (noticeMail) addMail(tx, userId, noticeMail, now);
  tx.publish(events);
  if (!takesOver) return [];
  markVerified(tx, userId, now);
  return setPassword(tx, userId, undefined, now);
}

export const singleSignOnTransactions = { addSsoAttempt, takeSsoAttempt, resolveExternalUser } satisfies Transactions;

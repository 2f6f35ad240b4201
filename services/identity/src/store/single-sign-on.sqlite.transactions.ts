import type { Transaction, Transactions } from "@sandgate/kit/storage/sqlite";
import { decideExternalUser, type ExternalIdentity, type ExternalUserChange } from "../domain/single-sign-on.ts";
import { addMail } from "./mails.sqlite.transactions.ts";
import { setPassword } from "./passwords.sqlite.transactions.ts";
import type { SingleSignOn } from "./single-sign-on.ts";
import { insert, type TransactionOf } from "./transaction.sqlite.ts";
import { insertUser, markVerified, readAccount } from "./users.sqlite.transactions.ts";

const addSsoAttempt: TransactionOf<SingleSignOn["addAttempt"]> = (tx, attempt) => {
  const { stateHash, browserHash, provider, redirectUri, expiresAt } = attempt;
  const hashes = { state_hash: stateHash, browser_hash: browserHash };
  insert(tx, "sso_attempts", { ...hashes, provider, redirect_uri: redirectUri, expires_at: expiresAt });
};

const takeSsoAttempt: TransactionOf<SingleSignOn["takeAttempt"]> = (tx, attempt, now) =>
  tx.db.get<{ redirectUri: string }>(
    `DELETE FROM sso_attempts WHERE state_hash = ? AND browser_hash = ? AND provider = ? AND expires_at > ?
     RETURNING redirect_uri AS redirectUri`,
    attempt.stateHash,
    attempt.browserHash,
    attempt.provider,
    now,
  );

function linkUser(
  tx: Transaction,
  { issuer, subject }: ExternalIdentity,
  { userId, created, takesOver, noticeMail, events }: ExternalUserChange,
  now: Date,
): string[] {
  insert(tx, "external_identities", { issuer, subject, user_id: userId, created_at: now });
  if (created) insertUser(tx, created);
  if (noticeMail) addMail(tx, userId, noticeMail, now);
  tx.publish(events);
  if (!takesOver) return [];
  markVerified(tx, userId, now);
  return setPassword(tx, userId, undefined, now);
}

const resolveExternalUser: TransactionOf<SingleSignOn["resolveUser"]> = (tx, identity, first, now) => {
  const { issuer, subject, name } = identity;
  const linked = tx.db.get<{ id: string }>(
    "SELECT user_id AS id FROM external_identities WHERE issuer = ? AND subject = ?",
    issuer,
    subject,
  );
  const holder = name && readAccount(tx.db, name)?.user;
  const decided = decideExternalUser({ linkedUserId: linked?.id, holder }, identity, first, now);
  if (typeof decided === "string") return decided;
  const { userId, change } = decided;
  return { userId, endedSessionIds: change ? linkUser(tx, identity, change, now) : [] };
};

export const singleSignOnTransactions = { addSsoAttempt, takeSsoAttempt, resolveExternalUser } satisfies Transactions;

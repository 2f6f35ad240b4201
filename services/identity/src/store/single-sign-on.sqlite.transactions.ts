import { toOptionalDate } from "@sandgate/kit/base/time";
import type { Transaction, Transactions } from "@sandgate/kit/storage/sqlite";
import { recentSignInStart } from "../domain/sessions.ts";
import {
  decideExternalUser,
  decideUnlink,
  type ExternalIdentity,
  type ExternalUserChange,
  identityId,
  isLinkGuarded,
  type LinkedIdentity,
} from "../domain/single-sign-on.ts";
import { usernameKey } from "../domain/users.ts";
import { addMail } from "./mails.sqlite.transactions.ts";
import { setPassword } from "./passwords.sqlite.transactions.ts";
import { hasSecondFactor } from "./second-factors.sqlite.transactions.ts";
import { endSessionsOf } from "./sessions.sqlite.transactions.ts";
import type { SingleSignOn } from "./single-sign-on.ts";
import { insert, type TransactionOf } from "./transaction.sqlite.ts";
import { insertUser, markVerified, readAccount } from "./users.sqlite.transactions.ts";

type ExternalAccount = Pick<ExternalIdentity, "issuer" | "subject">;

interface LinkRow extends ExternalAccount {
  provider: string | null;
  username: string;
  created_at: number;
  last_used_at: number | null;
}

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

/** The links of a user, newest first. Those of earlier versions lack the provider, and their address is the user's. */
export function readLinks(db: Transaction["db"], userId: string): (LinkedIdentity & { subject: string })[] {
  return db
    .all<LinkRow>(
      `SELECT e.issuer, e.subject, e.provider, coalesce(e.username, u.username) AS username, e.created_at, e.last_used_at
       FROM external_identities e JOIN users u ON u.id = e.user_id WHERE e.user_id = ?
       ORDER BY e.created_at DESC, e.issuer, e.subject`,
      userId,
    )
    .map(({ issuer, subject, provider, username, created_at, last_used_at }) => ({
      issuer,
      subject,
      id: identityId(issuer, subject),
      provider: provider ?? new URL(issuer).host,
      username,
      linkedAt: new Date(created_at),
      lastUsedAt: toOptionalDate(last_used_at),
    }));
}

function linkUser(
  tx: Transaction,
  { issuer, subject, provider, name }: ExternalIdentity,
  { userId, created, takesOver, noticeMail, events }: ExternalUserChange,
  now: Date,
): string[] {
  const link = { issuer, subject, user_id: userId, provider, username: name?.username, created_at: now };
  insert(tx, "external_identities", { ...link, last_used_at: now });
  tx.db.run("DELETE FROM removed_identities WHERE user_id = ? AND issuer = ? AND subject = ?", userId, issuer, subject);
  if (created) insertUser(tx, created);
  if (noticeMail) addMail(tx, userId, noticeMail, now);
  tx.publish(events);
  if (!takesOver) return [];
  markVerified(tx, userId, now);
  return setPassword(tx, userId, undefined, now);
}

function readHolder(tx: Transaction, name: { usernameKey: string }, { issuer, subject }: ExternalAccount, now: Date) {
  const user = readAccount(tx.db, name)?.user;
  if (!user) return undefined;
  const removed = "SELECT 1 FROM removed_identities WHERE user_id = ? AND issuer = ? AND subject = ?";
  const isGuarded = isLinkGuarded({
    secondFactor: hasSecondFactor(tx, user.id),
    hasRemovedLink: tx.db.get(removed, user.id, issuer, subject) !== undefined,
  });
  const recent = "SELECT address FROM sessions WHERE user_id = ? AND ended_at IS NULL AND created_at > ?";
  const signedInAt = isGuarded
    ? tx.db.all<{ address: string }>(recent, user.id, recentSignInStart(now)).map(({ address }) => address)
    : undefined;
  return { ...user, signedInAt };
}

const resolveExternalUser: TransactionOf<SingleSignOn["resolveUser"]> = (tx, identity, first, now) => {
  const { issuer, subject, provider, name, verified } = identity;
  const linked = tx.db.get<{ userId: string; username: string }>(
    `SELECT e.user_id AS userId, coalesce(e.username, u.username) AS username
     FROM external_identities e JOIN users u ON u.id = e.user_id WHERE e.issuer = ? AND e.subject = ?`,
    issuer,
    subject,
  );
  const link = linked && { userId: linked.userId, usernameKey: usernameKey(linked.username) };
  const holder = linked || !name ? undefined : readHolder(tx, name, identity, now);
  const decided = decideExternalUser({ link, holder }, identity, first, now);
  if (typeof decided === "string") return decided;
  const { userId, change } = decided;
  if (change) return { userId, endedSessionIds: linkUser(tx, identity, change, now) };
  tx.db.run(
    `UPDATE external_identities SET provider = :provider, username = coalesce(:username, username), last_used_at = :now
     WHERE issuer = :issuer AND subject = :subject`,
    { issuer, subject, provider, username: verified ? name?.username : undefined, now },
  );
  return { userId, endedSessionIds: [] };
};

const unlinkIdentity: TransactionOf<SingleSignOn["unlink"]> = (tx, { userId, id, keptSessionId }, change, now) => {
  const links = readLinks(tx.db, userId);
  const hasPassword = readAccount(tx.db, { id: userId })?.passwordHash !== undefined;
  const decided = decideUnlink({ hasPassword, identityIds: links.map((link) => link.id) }, id);
  if (decided !== "unlink") return decided;
  for (const { issuer, subject } of links.filter((link) => link.id === id)) {
    tx.db.run("DELETE FROM external_identities WHERE issuer = ? AND subject = ?", issuer, subject);
    tx.db.run("INSERT OR IGNORE INTO removed_identities VALUES (?, ?, ?)", userId, issuer, subject);
  }
  addMail(tx, userId, change.noticeMail, now);
  tx.publish(change.events);
  return endSessionsOf(tx, userId, now, keptSessionId);
};

export const singleSignOnTransactions = {
  addSsoAttempt,
  takeSsoAttempt,
  resolveExternalUser,
  unlinkIdentity,
} satisfies Transactions;

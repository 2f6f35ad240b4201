import { addMs, toOptionalDate } from "@sandgate/kit/base/time";
import type { StagedEvent } from "@sandgate/kit/events/outbox";
import type { IdempotencyRecord } from "@sandgate/kit/storage/idempotency-record";
import type { Transaction, Transactions } from "@sandgate/kit/storage/sqlite";
import { keptMs } from "../domain/retention.ts";
import { judgeRefresh, refreshTokenExpiry } from "../domain/sessions.ts";
import type { StoredKey } from "../domain/signing-keys.ts";
import { limitTransactions } from "./limits.sqlite.transactions.ts";
import { addMail } from "./mails.sqlite.ts";
import { endOtherSessions, setPassword } from "./passwords.sqlite.ts";
import { secondFactorTransactions } from "./second-factor.sqlite.transactions.ts";
import { ssoTransactions } from "./sso.sqlite.transactions.ts";
import {
  type ClientInfo,
  type DrawnRequests,
  type DueMail,
  type FirstOperator,
  type NewApiToken,
  type NewPasswordReset,
  type NewSession,
  type NewVerification,
  type PasswordChange,
  type Refreshed,
  type Registration,
  type RequestDraw,
  requestWindowMs,
  type SlotHold,
  slotLeaseMs,
} from "./store.ts";

function registerUser(tx: Transaction, registration: Registration): "created" | "renewed" | "taken" {
  const { id, passwordHash, createdAt, mails } = registration;
  const holder = tx.db.get<{ id: string; verified_at: number | null }>(
    "SELECT id, verified_at FROM users WHERE username_key = ?",
    registration.usernameKey,
  );
  if (!holder) {
    tx.db.run(
      `INSERT INTO users (id, username, username_key, password_hash, operator, version, created_at)
       VALUES (?, ?, ?, ?, 0, 1, ?)`,
      id,
      registration.username,
      registration.usernameKey,
      passwordHash,
      createdAt,
    );
    if (mails) addVerification(tx, id, passwordHash, mails.verification, createdAt);
    tx.publish(registration.events);
    return "created";
  }
  const outcome = holder.verified_at === null ? "renewed" : "taken";
  if (mails && outcome === "taken") addMail(tx, holder.id, mails.notice, createdAt);
  else if (mails) addVerification(tx, holder.id, passwordHash, mails.verification, createdAt);
  return outcome;
}

function renewVerification(tx: Transaction, userId: string, verification: NewVerification, now: Date): boolean {
  const unverified = tx.db.get("SELECT 1 FROM users WHERE id = ? AND verified_at IS NULL", userId);
  if (!unverified) return false;
  addVerification(tx, userId, null, verification, now);
  return true;
}

function verifyEmail(
  tx: Transaction,
  tokenHash: Uint8Array,
  passwordHash: string | undefined,
  now: Date,
  events: readonly StagedEvent[] = [],
): string[] | undefined {
  const verification = tx.db.get<{ user_id: string; password_hash: string | null }>(
    "SELECT user_id, password_hash FROM verifications WHERE token_hash = ? AND expires_at > ?",
    tokenHash,
    now,
  );
  const password = passwordHash ?? verification?.password_hash ?? undefined;
  if (!verification || password === undefined) return undefined;
  tx.db.run("UPDATE users SET verified_at = ?, version = version + 1 WHERE id = ?", now, verification.user_id);
  tx.publish(events);
  return setPassword(tx, verification.user_id, password, now);
}

function addPasswordReset(
  tx: Transaction,
  userId: string,
  { tokenHash, expiresAt, mail }: NewPasswordReset,
  now: Date,
): boolean {
  const verified = tx.db.get("SELECT 1 FROM users WHERE id = ? AND verified_at IS NOT NULL", userId);
  if (!verified) return false;
  tx.db.run(
    "INSERT INTO password_resets (token_hash, user_id, expires_at) VALUES (?, ?, ?)",
    tokenHash,
    userId,
    expiresAt,
  );
  addMail(tx, userId, mail, now);
  return true;
}

function resetPassword(
  tx: Transaction,
  tokenHash: Uint8Array,
  { passwordHash, noticeMail, events }: PasswordChange,
  now: Date,
): string[] | undefined {
  const reset = tx.db.get<{ user_id: string }>(
    "SELECT user_id FROM password_resets WHERE token_hash = ? AND expires_at > ?",
    tokenHash,
    now,
  );
  if (!reset) return undefined;
  addMail(tx, reset.user_id, noticeMail, now);
  tx.publish(events);
  return setPassword(tx, reset.user_id, passwordHash, now);
}

function changePassword(
  tx: Transaction,
  user: { id: string; currentHash: string; sessionId: string },
  { passwordHash, noticeMail, events }: PasswordChange,
  now: Date,
): string[] | undefined {
  if (!tx.db.get("SELECT 1 FROM users WHERE id = ? AND password_hash = ?", user.id, user.currentHash)) return undefined;
  addMail(tx, user.id, noticeMail, now);
  tx.publish(events);
  return setPassword(tx, user.id, passwordHash, now, user.sessionId);
}

function createFirstOperator(tx: Transaction, operator: FirstOperator): boolean {
  if (tx.db.get("SELECT 1 FROM users WHERE operator = 1 LIMIT 1")) return false;
  const { id, username, usernameKey, passwordHash, createdAt } = operator;
  tx.db.run(
    `INSERT INTO users (id, username, username_key, password_hash, verified_at, operator, version, created_at)
     VALUES (?, ?, ?, ?, ?, 1, 1, ?)`,
    id,
    username,
    usernameKey,
    passwordHash,
    createdAt,
    createdAt,
  );
  tx.publish(operator.events);
  return true;
}

function setUserDisabled(
  tx: Transaction,
  userId: string,
  disabled: boolean,
  now: Date,
  events: readonly StagedEvent[] = [],
): string[] | undefined {
  const known = tx.db.run(
    "UPDATE users SET disabled_at = CASE WHEN ? THEN coalesce(disabled_at, ?) END, version = version + 1 WHERE id = ?",
    disabled ? 1 : 0,
    now,
    userId,
  );
  if (known === 0) return undefined;
  tx.publish(events);
  return disabled ? endOtherSessions(tx, userId, undefined, now) : [];
}

function deleteUser(
  tx: Transaction,
  userId: string,
  events: readonly StagedEvent[],
  now: Date,
): string[] | "last_operator" | undefined {
  const user = tx.db.get<{ operator: number }>("SELECT operator FROM users WHERE id = ?", userId);
  if (!user) return undefined;
  if (user.operator === 1 && tx.db.all("SELECT 1 FROM users WHERE operator = 1 LIMIT 2").length < 2) {
    return "last_operator";
  }
  for (const table of [
    "verifications",
    "password_resets",
    "api_tokens",
    "mails",
    "external_identities",
    "known_networks",
    "second_factors",
    "recovery_codes",
  ]) {
    tx.db.run(`DELETE FROM ${table} WHERE user_id = ?`, userId);
  }
  tx.db.run("DELETE FROM users WHERE id = ?", userId);
  tx.publish(events);
  return endOtherSessions(tx, userId, undefined, now);
}

function deleteUnverified(tx: Transaction, userId: string, events: readonly StagedEvent[], now: Date): boolean {
  const due = tx.db.get(
    `SELECT 1 FROM users u WHERE id = ? AND verified_at IS NULL
       AND NOT EXISTS (SELECT 1 FROM verifications WHERE user_id = u.id AND expires_at > ?)`,
    userId,
    now,
  );
  return due !== undefined && Array.isArray(deleteUser(tx, userId, events, now));
}

function createSession(tx: Transaction, session: NewSession): boolean {
  const { userId, passwordHash } = session;
  const user = tx.db.get<{ password_hash: string | null }>(
    "SELECT password_hash FROM users WHERE id = ? AND disabled_at IS NULL",
    userId,
  );
  if (!user || (passwordHash !== undefined && user.password_hash !== passwordHash)) return false;
  tx.db.run(
    `INSERT INTO sessions (id, user_id, second_factor, created_at, expires_at, idle_at, seen_at, address, user_agent)
     VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?)`,
    session.id,
    session.userId,
    session.secondFactor ? 1 : 0,
    session.createdAt,
    session.expiresAt,
    session.refreshTokenExpiresAt,
    session.createdAt,
    session.client.address,
    session.client.userAgent,
  );
  addRefreshToken(tx, session.refreshTokenHash, session.id, session.refreshTokenExpiresAt);
  tx.publish(session.events ?? []);
  return true;
}

function rotateRefreshToken(
  tx: Transaction,
  presentedHash: Uint8Array,
  successorHash: Uint8Array,
  client: ClientInfo,
  now: Date,
  eventsOfReuse: readonly StagedEvent[] = [],
): Refreshed {
  const row = tx.db.get<{
    session_id: string;
    user_id: string;
    operator: number;
    second_factor: number;
    token_expires_at: number;
    used_at: number | null;
    session_expires_at: number;
    ended_at: number | null;
  }>(
    `SELECT t.session_id, s.user_id, u.operator, s.second_factor, t.expires_at AS token_expires_at, t.used_at,
            s.expires_at AS session_expires_at, s.ended_at
     FROM refresh_tokens t JOIN sessions s ON s.id = t.session_id JOIN users u ON u.id = s.user_id
     WHERE t.token_hash = ?`,
    presentedHash,
  );
  if (!row) return { outcome: "bad" };
  const sessionId = row.session_id;
  const session = { endedAt: toOptionalDate(row.ended_at), expiresAt: new Date(row.session_expires_at) };
  const successor = tx.db.get<{ expires_at: number; used_at: number | null }>(
    "SELECT expires_at, used_at FROM refresh_tokens WHERE token_hash = ?",
    successorHash,
  );
  const token = {
    expiresAt: new Date(row.token_expires_at),
    usedAt: toOptionalDate(row.used_at),
    successorUsed: typeof successor?.used_at === "number",
  };
  const refreshed = {
    outcome: "refreshed" as const,
    sessionId,
    userId: row.user_id,
    operator: row.operator === 1,
    secondFactor: row.second_factor === 1,
  };
  switch (judgeRefresh(token, session, now)) {
    case "bad":
      return { outcome: "bad" };
    case "reused":
      tx.db.run("UPDATE sessions SET ended_at = ? WHERE id = ?", now, sessionId);
      // Presented again once the session has ended, it ends nothing.
      if (session.endedAt === undefined) tx.publish(eventsOfReuse);
      return { outcome: "reused", sessionId };
    case "repeat":
      return successor ? { ...refreshed, refreshTokenExpiresAt: new Date(successor.expires_at) } : { outcome: "bad" };
    case "rotate": {
      const expiresAt = refreshTokenExpiry(session, now);
      tx.db.run("UPDATE refresh_tokens SET used_at = ? WHERE token_hash = ?", now, presentedHash);
      addRefreshToken(tx, successorHash, sessionId, expiresAt);
      tx.db.run(
        "UPDATE sessions SET idle_at = ?, seen_at = ?, address = ?, user_agent = ? WHERE id = ?",
        expiresAt,
        now,
        client.address,
        client.userAgent,
        sessionId,
      );
      return { ...refreshed, refreshTokenExpiresAt: expiresAt };
    }
  }
}

function endSessionOf(
  tx: Transaction,
  refreshTokenHash: Uint8Array,
  now: Date,
  events: readonly StagedEvent[] = [],
): string | undefined {
  const ended = tx.db.get<{ id: string }>(
    `UPDATE sessions SET ended_at = ?
     WHERE ended_at IS NULL AND id = (SELECT session_id FROM refresh_tokens WHERE token_hash = ?)
     RETURNING id`,
    now,
    refreshTokenHash,
  );
  if (ended) tx.publish(events);
  return ended?.id;
}

function endSession(
  tx: Transaction,
  userId: string,
  sessionId: string,
  now: Date,
  events: readonly StagedEvent[] = [],
): boolean {
  const ended = tx.db.run(
    "UPDATE sessions SET ended_at = ? WHERE id = ? AND user_id = ? AND ended_at IS NULL AND idle_at > ?",
    now,
    sessionId,
    userId,
    now,
  );
  if (ended > 0) tx.publish(events);
  return ended > 0;
}

function createApiToken(
  tx: Transaction,
  token: NewApiToken,
  maxTokens: number,
  record: IdempotencyRecord | undefined,
  events: readonly StagedEvent[] = [],
): "done" | "too_many" {
  if (maxTokens > 0) {
    const held = tx.db.all("SELECT 1 FROM api_tokens WHERE user_id = ? LIMIT ?", token.userId, maxTokens);
    if (held.length === maxTokens) return "too_many";
  }
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

function noteApiTokenUses(tx: Transaction, uses: readonly { id: string; usedAt: Date }[]): void {
  for (const { id, usedAt } of uses) {
    tx.db.run(
      "UPDATE api_tokens SET last_used_at = ? WHERE id = ? AND (last_used_at IS NULL OR last_used_at < ?)",
      usedAt,
      id,
      usedAt,
    );
  }
}

function addKey(tx: Transaction, key: StoredKey, unlessAfter: Date): boolean {
  if (tx.db.get("SELECT 1 FROM keys WHERE use = ? AND created_at > ? LIMIT 1", key.use, unlessAfter)) return false;
  insertKey(tx, key);
  return true;
}

function insertKey(tx: Transaction, key: StoredKey): void {
  tx.db.run(
    "INSERT INTO keys (id, use, public_jwk, sealed, created_at) VALUES (?, ?, ?, ?, ?)",
    key.id,
    key.use,
    key.publicJwk,
    key.sealed,
    key.createdAt,
  );
}

function replaceKeys(tx: Transaction, keys: readonly StoredKey[], endedAt: Date): void {
  tx.db.run("DELETE FROM keys");
  for (const key of keys) insertKey(tx, key);
  tx.db.run("UPDATE sessions SET ended_at = ? WHERE ended_at IS NULL", endedAt);
}

function removeKeys(tx: Transaction, ids: readonly string[]): void {
  for (const id of ids) tx.db.run("DELETE FROM keys WHERE id = ?", id);
}

function takeDueMails(tx: Transaction, now: Date, leasedUntil: Date, limit: number): DueMail[] {
  const mails = tx.db.all<{ id: string; sealed: Uint8Array; attempts: number }>(
    "SELECT id, sealed, attempts FROM mails WHERE due_at <= ? AND sealed IS NOT NULL ORDER BY due_at, id LIMIT ?",
    now,
    limit,
  );
  for (const { id } of mails) {
    tx.db.run("UPDATE mails SET due_at = ?, attempts = attempts + 1 WHERE id = ?", leasedUntil, id);
  }
  return mails;
}

function finishMail(tx: Transaction, id: string): void {
  tx.db.run("UPDATE mails SET sealed = NULL, due_at = NULL WHERE id = ?", id);
}

function postponeMail(tx: Transaction, id: string, until: Date): void {
  tx.db.run("UPDATE mails SET due_at = ? WHERE id = ? AND sealed IS NOT NULL", until, id);
}

function drawRequests(tx: Transaction, { key, limit, wanted }: RequestDraw, now: Date): DrawnRequests {
  const known = tx.db.get<{ used: number; ends_at: number }>(
    "SELECT used, ends_at FROM request_windows WHERE key = ? AND ends_at > ?",
    key,
    now,
  );
  const used = known?.used ?? 0;
  const endsAt = known ? new Date(known.ends_at) : addMs(now, requestWindowMs);
  const granted = Math.max(0, Math.min(wanted, limit - used));
  tx.db.run(
    `INSERT INTO request_windows (key, used, ends_at) VALUES (?, ?, ?)
     ON CONFLICT DO UPDATE SET used = excluded.used, ends_at = excluded.ends_at`,
    key,
    used + granted,
    endsAt,
  );
  return { granted, remaining: Math.max(0, limit - used - granted), endsAt };
}

function holdSlots(tx: Transaction, holder: string, holds: readonly SlotHold[], now: Date): number[] {
  return holds.map(({ key, limit, used, wanted }) => {
    const others = tx.db.get<{ held: number | null }>(
      "SELECT sum(held) AS held FROM held_slots WHERE key = ? AND holder <> ? AND ends_at > ?",
      key,
      holder,
      now,
    );
    const held = Math.max(used, Math.min(wanted, limit - (others?.held ?? 0)));
    if (held === 0) tx.db.run("DELETE FROM held_slots WHERE key = ? AND holder = ?", key, holder);
    else {
      tx.db.run(
        `INSERT INTO held_slots (key, holder, held, ends_at) VALUES (?, ?, ?, ?)
         ON CONFLICT DO UPDATE SET held = excluded.held, ends_at = excluded.ends_at`,
        key,
        holder,
        held,
        addMs(now, slotLeaseMs),
      );
    }
    return held;
  });
}

function sweep(tx: Transaction, now: Date, limit: number): number {
  /** Deletes what has been kept long enough; the condition compares a time with `?`. */
  const remove = (table: string, condition: string, kind: keyof typeof keptMs): number =>
    tx.db.run(
      `DELETE FROM ${table} WHERE rowid IN (SELECT rowid FROM ${table} WHERE ${condition} LIMIT ?)`,
      addMs(now, -keptMs[kind]),
      limit,
    );
  return (
    remove("verifications", "expires_at <= ?", "verifications") +
    remove("password_resets", "expires_at <= ?", "passwordResets") +
    remove("sso_attempts", "expires_at <= ?", "ssoAttempts") +
    remove("second_factors", "expires_at <= ?", "pendingSecondFactors") +
    remove("mails", "due_at IS NULL AND created_at < ?", "sentMails") +
    remove("mails", "due_at IS NOT NULL AND created_at < ?", "unsentMails") +
    remove("refresh_tokens", "expires_at < ?", "refreshTokens") +
    remove("sessions", "ended_at < ?", "sessions") +
    remove("sessions", "idle_at < ?", "sessions") +
    remove("api_tokens", "expires_at < ?", "apiTokens") +
    remove("request_windows", "ends_at <= ?", "requestWindows") +
    remove("known_networks", "seen_at <= ?", "knownNetworks") +
    remove("held_slots", "ends_at <= ?", "heldSlots")
  );
}

function addRefreshToken(tx: Transaction, tokenHash: Uint8Array, sessionId: string, expiresAt: Date): void {
  tx.db.run(
    "INSERT INTO refresh_tokens (token_hash, session_id, expires_at) VALUES (?, ?, ?)",
    tokenHash,
    sessionId,
    expiresAt,
  );
}

function addVerification(
  tx: Transaction,
  userId: string,
  passwordHash: string | null,
  { tokenHash, expiresAt, mail }: NewVerification,
  now: Date,
): void {
  tx.db.run(
    "INSERT INTO verifications (token_hash, user_id, password_hash, expires_at) VALUES (?, ?, ?, ?)",
    tokenHash,
    userId,
    passwordHash,
    expiresAt,
  );
  addMail(tx, userId, mail, now);
}

/** What the writer thread runs; `IdentityStore` says what each one means. */
export const transactions = {
  ...ssoTransactions,
  ...secondFactorTransactions,
  registerUser,
  renewVerification,
  verifyEmail,
  addPasswordReset,
  resetPassword,
  changePassword,
  createFirstOperator,
  createSession,
  rotateRefreshToken,
  setUserDisabled,
  deleteUser,
  deleteUnverified,
  endSessionOf,
  endSession,
  endOtherSessions(
    tx: Transaction,
    userId: string,
    keptSessionId: string | undefined,
    now: Date,
    events: readonly StagedEvent[] = [],
  ): string[] {
    const ended = endOtherSessions(tx, userId, keptSessionId, now);
    if (ended.length > 0) tx.publish(events);
    return ended;
  },
  createApiToken,
  revokeApiToken,
  noteApiTokenUses,
  addKey,
  replaceKeys,
  removeKeys,
  takeDueMails,
  finishMail,
  postponeMail,
  drawRequests,
  holdSlots,
  sweep,
  ...limitTransactions,
} satisfies Transactions;

import { toOptionalDate } from "@sandgate/kit/base/time";
import { type SqliteStoreOptions, serviceStoreOf } from "@sandgate/kit/storage/open-store";
import type { SealedColumn } from "@sandgate/kit/storage/sealed-values";
import { openSqlite } from "@sandgate/kit/storage/sqlite";
import type { Role } from "@sandgate/proto/common/v1/access";
import type { ApiToken } from "../domain/api-tokens.ts";
import type { StoredKey } from "../domain/signing-keys.ts";
import type { User } from "../domain/users.ts";
import { createLimitStore, limitMigration } from "./limits.sqlite.ts";
import { createSecondFactorStore, secondFactorMigration } from "./second-factor.sqlite.ts";
import type { transactions } from "./store.sqlite.transactions.ts";
import type { IdentityStore } from "./store.ts";

/** Times are epoch milliseconds. */
const migrations = [
  `CREATE TABLE users (
     id TEXT PRIMARY KEY,
     username TEXT NOT NULL,
     username_key TEXT NOT NULL UNIQUE,
     password_hash TEXT,
     verified_at INTEGER,
     operator INTEGER NOT NULL,
     version INTEGER NOT NULL,
     created_at INTEGER NOT NULL
   ) STRICT;
   CREATE INDEX users_operators ON users (operator) WHERE operator = 1;

   CREATE TABLE verifications (
     token_hash BLOB PRIMARY KEY,
     user_id TEXT NOT NULL,
     password_hash TEXT,
     expires_at INTEGER NOT NULL
   ) STRICT;
   CREATE INDEX verifications_user ON verifications (user_id);
   CREATE INDEX verifications_expiry ON verifications (expires_at);

   CREATE TABLE sessions (
     id TEXT PRIMARY KEY,
     user_id TEXT NOT NULL,
     created_at INTEGER NOT NULL,
     expires_at INTEGER NOT NULL,
     idle_at INTEGER NOT NULL,
     ended_at INTEGER
   ) STRICT;
   CREATE INDEX sessions_user ON sessions (user_id);
   CREATE INDEX sessions_idle ON sessions (idle_at);
   CREATE INDEX sessions_ended ON sessions (ended_at) WHERE ended_at IS NOT NULL;

   CREATE TABLE refresh_tokens (
     token_hash BLOB PRIMARY KEY,
     session_id TEXT NOT NULL,
     expires_at INTEGER NOT NULL,
     used_at INTEGER
   ) STRICT;
   CREATE INDEX refresh_tokens_expiry ON refresh_tokens (expires_at);

   CREATE TABLE api_tokens (
     id TEXT PRIMARY KEY,
     user_id TEXT NOT NULL,
     token_hash BLOB NOT NULL UNIQUE,
     description TEXT NOT NULL,
     hint TEXT NOT NULL,
     workspace_id TEXT,
     expires_at INTEGER,
     created_at INTEGER NOT NULL,
     last_used_at INTEGER
   ) STRICT;
   CREATE INDEX api_tokens_page ON api_tokens (user_id, created_at DESC, id DESC);
   CREATE INDEX api_tokens_expiry ON api_tokens (expires_at) WHERE expires_at IS NOT NULL;

   CREATE TABLE request_windows (
     key BLOB PRIMARY KEY,
     used INTEGER NOT NULL,
     ends_at INTEGER NOT NULL
   ) STRICT;
   CREATE INDEX request_windows_end ON request_windows (ends_at);

   CREATE TABLE keys (
     id TEXT PRIMARY KEY,
     use TEXT NOT NULL,
     public_jwk TEXT NOT NULL,
     sealed BLOB NOT NULL,
     created_at INTEGER NOT NULL
   ) STRICT;

   CREATE TABLE mails (
     id TEXT PRIMARY KEY,
     user_id TEXT NOT NULL,
     sealed BLOB,
     attempts INTEGER NOT NULL,
     created_at INTEGER NOT NULL,
     due_at INTEGER
   ) STRICT;
   CREATE INDEX mails_user ON mails (user_id, created_at);
   CREATE INDEX mails_due ON mails (due_at) WHERE due_at IS NOT NULL;
   CREATE INDEX mails_created ON mails (created_at);`,

  `CREATE TABLE password_resets (
     token_hash BLOB PRIMARY KEY,
     user_id TEXT NOT NULL,
     expires_at INTEGER NOT NULL
   ) STRICT;
   CREATE INDEX password_resets_user ON password_resets (user_id);
   CREATE INDEX password_resets_expiry ON password_resets (expires_at);

   ALTER TABLE sessions ADD COLUMN seen_at INTEGER;
   ALTER TABLE sessions ADD COLUMN address TEXT NOT NULL DEFAULT '';
   ALTER TABLE sessions ADD COLUMN user_agent TEXT NOT NULL DEFAULT '';
   ALTER TABLE users ADD COLUMN disabled_at INTEGER;
   CREATE INDEX users_newest ON users (created_at DESC, id DESC);
   CREATE INDEX users_unverified ON users (created_at) WHERE verified_at IS NULL;
   DROP INDEX sessions_user;
   CREATE INDEX sessions_page ON sessions (user_id, created_at DESC, id DESC);`,
  `CREATE TABLE held_slots (
     key BLOB NOT NULL,
     holder TEXT NOT NULL,
     held INTEGER NOT NULL,
     ends_at INTEGER NOT NULL,
     PRIMARY KEY (key, holder)
   ) STRICT;
   CREATE INDEX held_slots_end ON held_slots (ends_at);`,
  `CREATE TABLE sso_attempts (
     state_hash BLOB PRIMARY KEY,
     browser_hash BLOB NOT NULL,
     provider TEXT NOT NULL,
     redirect_uri TEXT NOT NULL,
     expires_at INTEGER NOT NULL
   ) STRICT;
   CREATE INDEX sso_attempts_expiry ON sso_attempts (expires_at);

   CREATE TABLE external_identities (
     issuer TEXT NOT NULL,
     subject TEXT NOT NULL,
     user_id TEXT NOT NULL,
     created_at INTEGER NOT NULL,
     PRIMARY KEY (issuer, subject)
   ) STRICT;
   CREATE INDEX external_identities_user ON external_identities (user_id);`,
  "ALTER TABLE api_tokens ADD COLUMN role INTEGER NOT NULL DEFAULT 0;",
  limitMigration,
  secondFactorMigration,
];

const sealedColumns: readonly SealedColumn[] = [
  { table: "keys", column: "sealed" },
  { table: "mails", column: "sealed" },
  { table: "second_factors", column: "sealed" },
];

const userColumns = "id, username, verified_at, operator, disabled_at, created_at";

interface UserRow {
  id: string;
  username: string;
  verified_at: number | null;
  operator: number;
  disabled_at: number | null;
  created_at: number;
}

function toUser(row: UserRow): User {
  return {
    id: row.id,
    username: row.username,
    verified: row.verified_at !== null,
    operator: row.operator === 1,
    disabled: row.disabled_at !== null,
    createdAt: new Date(row.created_at),
  };
}

const apiTokenColumns =
  "t.id, t.user_id, t.description, t.hint, t.workspace_id, t.role, t.expires_at, t.created_at, t.last_used_at";

interface ApiTokenRow {
  id: string;
  user_id: string;
  description: string;
  hint: string;
  workspace_id: string | null;
  role: Role;
  expires_at: number | null;
  created_at: number;
  last_used_at: number | null;
}

function toApiToken(row: ApiTokenRow): ApiToken {
  return {
    id: row.id,
    userId: row.user_id,
    description: row.description,
    hint: row.hint,
    workspaceId: row.workspace_id ?? undefined,
    role: row.role,
    expiresAt: toOptionalDate(row.expires_at),
    createdAt: new Date(row.created_at),
    lastUsedAt: toOptionalDate(row.last_used_at),
  };
}

/** Opens the service's SQLite file, creating and migrating it as needed. */
export async function openSqliteStore(options: SqliteStoreOptions): Promise<IdentityStore> {
  const database = await openSqlite<typeof transactions>({
    ...options,
    migrations,
    transactions: new URL("./store.sqlite.transactions.ts", import.meta.url),
  });
  const { read, write } = database;

  return {
    ...serviceStoreOf(database, sealedColumns),
    ...createLimitStore(database),
    ...createSecondFactorStore(database),
    registerUser: write.registerUser,
    renewVerification: write.renewVerification,
    verifyEmail: write.verifyEmail,
    addPasswordReset: write.addPasswordReset,
    resetPassword: write.resetPassword,
    changePassword: write.changePassword,
    createFirstOperator: write.createFirstOperator,
    createSession: write.createSession,
    rotateRefreshToken: write.rotateRefreshToken,
    endSessionOf: write.endSessionOf,
    deleteUser: write.deleteUser,
    deleteUnverified: write.deleteUnverified,
    endSession: write.endSession,
    endOtherSessions: write.endOtherSessions,
    createApiToken: write.createApiToken,
    revokeApiToken: write.revokeApiToken,
    noteApiTokenUses: write.noteApiTokenUses,
    addKey: write.addKey,
    replaceKeys: write.replaceKeys,
    removeKeys: write.removeKeys,
    takeDueMails: write.takeDueMails,
    finishMail: write.finishMail,
    postponeMail: write.postponeMail,
    drawRequests: write.drawRequests,
    holdSlots: write.holdSlots,
    sweep: write.sweep,
    addSsoAttempt: write.addSsoAttempt,
    takeSsoAttempt: write.takeSsoAttempt,
    resolveExternalUser: write.resolveExternalUser,

    async hasOperator() {
      return read.get("SELECT 1 FROM users WHERE operator = 1 LIMIT 1") !== undefined;
    },

    async findVerification(tokenHash, now) {
      const row = read.get<{ id: string; username: string; has_password: number }>(
        `SELECT u.id, u.username, v.password_hash IS NOT NULL AS has_password
         FROM verifications v JOIN users u ON u.id = v.user_id WHERE v.token_hash = ? AND v.expires_at > ?`,
        tokenHash,
        now,
      );
      return row && { userId: row.id, username: row.username, hasPassword: row.has_password === 1 };
    },

    async findPasswordReset(tokenHash, now) {
      return read.get<{ userId: string; username: string }>(
        `SELECT u.id AS userId, u.username FROM password_resets r JOIN users u ON u.id = r.user_id
         WHERE r.token_hash = ? AND r.expires_at > ?`,
        tokenHash,
        now,
      );
    },

    async findSignIn(who) {
      const [column, value] = "id" in who ? ["id", who.id] : ["username_key", who.usernameKey];
      const row = read.get<UserRow & { password_hash: string | null }>(
        `SELECT ${userColumns}, password_hash FROM users WHERE ${column} = ?`,
        value,
      );
      return row && { user: toUser(row), passwordHash: row.password_hash ?? undefined };
    },

    async findUsers(ids, usernameKeys) {
      const rows = read.all<UserRow>(
        `SELECT ${userColumns} FROM users
         WHERE id IN (SELECT value FROM json_each(?)) OR username_key IN (SELECT value FROM json_each(?))`,
        JSON.stringify(ids),
        JSON.stringify(usernameKeys),
      );
      return rows.map(toUser);
    },

    async listUsers(usernameKey, limit, before) {
      const rows = read.all<UserRow>(
        `SELECT ${userColumns} FROM users
         WHERE (:name IS NULL OR username_key = :name) AND (:before IS NULL OR (created_at, id) < (:before, :id))
         ORDER BY created_at DESC, id DESC LIMIT :limit`,
        { name: usernameKey, before: before?.createdAt, id: before?.id, limit },
      );
      return rows.map(toUser);
    },

    async setUserDisabled(userId, disabled, now, events) {
      const endedSessionIds = await write.setUserDisabled(userId, disabled, now, events);
      const user = read.get<UserRow>(`SELECT ${userColumns} FROM users WHERE id = ?`, userId);
      return endedSessionIds && user && { user: toUser(user), endedSessionIds };
    },

    async listUnverified(registeredBefore, now, limit) {
      return read
        .all<{ id: string }>(
          `SELECT id FROM users u WHERE verified_at IS NULL AND created_at < ?
             AND NOT EXISTS (SELECT 1 FROM verifications WHERE user_id = u.id AND expires_at > ?)
           ORDER BY created_at LIMIT ?`,
          registeredBefore,
          now,
          limit,
        )
        .map(({ id }) => id);
    },

    async findSessionOf(refreshTokenHash) {
      return read.get<{ sessionId: string; userId: string }>(
        `SELECT s.id AS sessionId, s.user_id AS userId FROM refresh_tokens t JOIN sessions s ON s.id = t.session_id
         WHERE t.token_hash = ?`,
        refreshTokenHash,
      );
    },

    async listSessions(userId, limit, before, now) {
      const rows = read.all<{
        id: string;
        created_at: number;
        seen_at: number | null;
        address: string;
        user_agent: string;
      }>(
        `SELECT id, created_at, seen_at, address, user_agent FROM sessions
         WHERE user_id = :user AND ended_at IS NULL AND idle_at > :now
           AND (:before IS NULL OR (created_at, id) < (:before, :id))
         ORDER BY created_at DESC, id DESC LIMIT :limit`,
        { user: userId, now, before: before?.createdAt, id: before?.id, limit },
      );
      return rows.map(({ id, created_at, seen_at, address, user_agent }) => ({
        id,
        createdAt: new Date(created_at),
        lastSeenAt: new Date(seen_at ?? created_at),
        client: { address, userAgent: user_agent },
      }));
    },

    async findSessionStart(userId, sessionId) {
      const row = read.get<{ created_at: number }>(
        "SELECT created_at FROM sessions WHERE id = ? AND user_id = ? AND ended_at IS NULL",
        sessionId,
        userId,
      );
      return toOptionalDate(row?.created_at);
    },

    async listSessionsEndedSince(since) {
      return read.all<{ id: string }>("SELECT id FROM sessions WHERE ended_at > ?", since).map(({ id }) => id);
    },

    async findApiToken(tokenHash) {
      const row = read.get<ApiTokenRow & { operator: number; second_factor: number }>(
        `SELECT ${apiTokenColumns}, u.operator,
           u.operator = 1 AND EXISTS (SELECT 1 FROM second_factors f WHERE f.user_id = u.id AND f.enabled_at IS NOT NULL)
             AS second_factor
         FROM api_tokens t JOIN users u ON u.id = t.user_id
         WHERE t.token_hash = ? AND u.disabled_at IS NULL`,
        tokenHash,
      );
      return row && { ...toApiToken(row), operator: row.operator === 1, secondFactor: row.second_factor === 1 };
    },

    async listApiTokens(userId, limit, before) {
      const rows = read.all<ApiTokenRow>(
        `SELECT ${apiTokenColumns} FROM api_tokens t
         WHERE t.user_id = ? AND (t.created_at, t.id) < (?, ?)
         ORDER BY t.created_at DESC, t.id DESC LIMIT ?`,
        userId,
        before?.createdAt ?? Number.MAX_SAFE_INTEGER,
        before?.id ?? "",
        limit,
      );
      return rows.map(toApiToken);
    },

    async listKeys() {
      return read
        .all<{ id: string; use: StoredKey["use"]; public_jwk: string; sealed: Uint8Array; created_at: number }>(
          "SELECT id, use, public_jwk, sealed, created_at FROM keys ORDER BY created_at DESC, id DESC",
        )
        .map(({ id, use, public_jwk, sealed, created_at }) => ({
          id,
          use,
          publicJwk: public_jwk,
          sealed,
          createdAt: new Date(created_at),
        }));
    },
  };
}

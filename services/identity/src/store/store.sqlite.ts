import { type SqliteStoreOptions, serviceStoreOf } from "@sandgate/kit/storage/open-store";
import { openSqlite, type SqliteDatabase } from "@sandgate/kit/storage/sqlite";
import type { ApiToken } from "../domain/api-tokens.ts";
import type { User } from "../domain/users.ts";
import type { transactions } from "./store.sqlite.transactions.ts";
import type { IdentityStore, StoredKey } from "./store.ts";

type IdentityDatabase = SqliteDatabase<typeof transactions>;

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
];

/** Opens identity's database. The store's reads run in the calling thread, its transactions in the writer's. */
export async function openSqliteStore(options: SqliteStoreOptions): Promise<IdentityStore> {
  const database: IdentityDatabase = await openSqlite<typeof transactions>({
    ...options,
    migrations,
    transactions: new URL("./store.sqlite.transactions.ts", import.meta.url),
  });
  return createSqliteStore(database);
}

function createSqliteStore(database: IdentityDatabase): IdentityStore {
  const { read, write } = database;
  return {
    ...serviceStoreOf(database),
    registerUser: (registration) => write.registerUser(registration),
    renewVerification: (usernameKey, verification, now) => write.renewVerification(usernameKey, verification, now),
    verifyEmail: (tokenHash, now) => write.verifyEmail(tokenHash, now),
    createFirstOperator: (operator) => write.createFirstOperator(operator),
    createSession: (session) => write.createSession(session),
    rotateRefreshToken: (presented, successor, now) => write.rotateRefreshToken(presented, successor, now),
    endSessionOf: (refreshTokenHash, now) => write.endSessionOf(refreshTokenHash, now),
    createApiToken: (token, record) => write.createApiToken(token, record),
    revokeApiToken: (userId, tokenId, events) => write.revokeApiToken(userId, tokenId, events),
    noteApiTokenUses: (uses) => write.noteApiTokenUses(uses),
    addKey: (key, unlessAfter) => write.addKey(key, unlessAfter),
    removeKeys: (ids) => write.removeKeys(ids),
    takeDueMails: (now, leasedUntil, limit) => write.takeDueMails(now, leasedUntil, limit),
    finishMail: (id) => write.finishMail(id),
    postponeMail: (id, until) => write.postponeMail(id, until),
    drawRequests: (draw, now) => write.drawRequests(draw, now),
    sweep: (cutoffs, limit) => write.sweep(cutoffs, limit),

    async hasOperator() {
      return read.get("SELECT 1 FROM users WHERE operator = 1 LIMIT 1") !== undefined;
    },

    async findSignIn(usernameKey) {
      const row = read.get<UserRow & { password_hash: string | null }>(
        `SELECT ${USER_COLUMNS}, password_hash FROM users WHERE username_key = ?`,
        usernameKey,
      );
      return row && { user: toUser(row), passwordHash: row.password_hash ?? undefined };
    },

    async findUsers(ids, usernameKeys) {
      const rows = read.all<UserRow>(
        `SELECT ${USER_COLUMNS} FROM users
         WHERE id IN (SELECT value FROM json_each(?)) OR username_key IN (SELECT value FROM json_each(?))`,
        JSON.stringify(ids),
        JSON.stringify(usernameKeys),
      );
      return rows.map(toUser);
    },

    async findSessionOf(refreshTokenHash) {
      return read.get<{ session_id: string }>(
        "SELECT session_id FROM refresh_tokens WHERE token_hash = ?",
        refreshTokenHash,
      )?.session_id;
    },

    async listSessionsEndedSince(since) {
      return read.all<{ id: string }>("SELECT id FROM sessions WHERE ended_at > ?", since).map(({ id }) => id);
    },

    async findApiToken(tokenHash) {
      const row = read.get<ApiTokenRow & { operator: number }>(
        `SELECT ${API_TOKEN_COLUMNS}, u.operator FROM api_tokens t JOIN users u ON u.id = t.user_id
         WHERE t.token_hash = ?`,
        tokenHash,
      );
      return row && { ...toApiToken(row), operator: row.operator === 1 };
    },

    async listApiTokens(userId, limit, before) {
      // A row value compared with NULL is NULL, so the first page needs a condition of its own.
      const rows = read.all<ApiTokenRow>(
        `SELECT ${API_TOKEN_COLUMNS} FROM api_tokens t
         WHERE t.user_id = :user AND (:before IS NULL OR (t.created_at, t.id) < (:before, :id))
         ORDER BY t.created_at DESC, t.id DESC LIMIT :limit`,
        { user: userId, before: before?.createdAt, id: before?.id, limit },
      );
      return rows.map(toApiToken);
    },

    async listKeys() {
      return read
        .all<{ id: string; use: StoredKey["use"]; public_jwk: string; sealed: Uint8Array; created_at: number }>(
          "SELECT id, use, public_jwk, sealed, created_at FROM keys ORDER BY created_at DESC, id DESC",
        )
        .map(({ id, use, public_jwk, sealed, created_at }) => ({
          ...{ id, use, sealed },
          publicJwk: public_jwk,
          createdAt: created_at,
        }));
    },
  };
}

const USER_COLUMNS = "id, username, verified_at, operator, created_at";

interface UserRow {
  id: string;
  username: string;
  verified_at: number | null;
  operator: number;
  created_at: number;
}

function toUser(row: UserRow): User {
  return {
    id: row.id,
    username: row.username,
    verified: row.verified_at !== null,
    operator: row.operator === 1,
    createdAt: row.created_at,
  };
}

const API_TOKEN_COLUMNS =
  "t.id, t.user_id, t.description, t.hint, t.workspace_id, t.expires_at, t.created_at, t.last_used_at";

interface ApiTokenRow {
  id: string;
  user_id: string;
  description: string;
  hint: string;
  workspace_id: string | null;
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
    expiresAt: row.expires_at ?? undefined,
    createdAt: row.created_at,
    lastUsedAt: row.last_used_at ?? undefined,
  };
}

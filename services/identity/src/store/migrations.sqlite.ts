import type { SqliteMigration } from "@sandgate/kit/storage/sqlite";
import { sealedIndex } from "@sandgate/kit/storage/sqlite-sealed";

/** Times are epoch milliseconds. */
export const migrations: readonly SqliteMigration[] = [
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
  `CREATE TABLE known_networks (
     network BLOB PRIMARY KEY,
     user_id TEXT NOT NULL,
     seen_at INTEGER NOT NULL
   ) STRICT;
   CREATE INDEX known_networks_user ON known_networks (user_id);
   CREATE INDEX known_networks_seen ON known_networks (seen_at);`,
  `CREATE TABLE second_factors (
     id TEXT PRIMARY KEY,
     user_id TEXT NOT NULL UNIQUE,
     sealed BLOB NOT NULL,
     -- Until when it is pending, and since when it is enabled.
     expires_at INTEGER,
     enabled_at INTEGER,
     last_step INTEGER NOT NULL DEFAULT 0,
     attempts INTEGER NOT NULL DEFAULT 0,
     refused_until INTEGER
   ) STRICT;
   CREATE INDEX second_factors_expiry ON second_factors (expires_at) WHERE expires_at IS NOT NULL;
   CREATE TABLE recovery_codes (
     user_id TEXT NOT NULL,
     code_hash BLOB NOT NULL,
     PRIMARY KEY (user_id, code_hash)
   ) STRICT, WITHOUT ROWID;
   ALTER TABLE sessions ADD COLUMN second_factor INTEGER NOT NULL DEFAULT 0;`,
  `ALTER TABLE api_tokens ADD COLUMN second_factor INTEGER NOT NULL DEFAULT 0;
   ALTER TABLE second_factors ADD COLUMN attempts_elsewhere INTEGER NOT NULL DEFAULT 0;
   ALTER TABLE second_factors ADD COLUMN refused_elsewhere_until INTEGER;`,
  `CREATE INDEX sessions_live ON sessions (id) WHERE ended_at IS NULL;
   ${sealedIndex({ table: "keys", column: "sealed" })}
   ${sealedIndex({ table: "mails", column: "sealed" })}
   ${sealedIndex({ table: "second_factors", column: "sealed" })}`,
  `ALTER TABLE external_identities ADD COLUMN provider TEXT;
   ALTER TABLE external_identities ADD COLUMN username TEXT;
   ALTER TABLE external_identities ADD COLUMN last_used_at INTEGER;
   DROP INDEX external_identities_user;
   CREATE INDEX external_identities_page ON external_identities (user_id, created_at DESC, issuer, subject);
   CREATE TABLE removed_identities (
     user_id TEXT NOT NULL,
     issuer TEXT NOT NULL,
     subject TEXT NOT NULL,
     PRIMARY KEY (user_id, issuer, subject)
   ) STRICT, WITHOUT ROWID;`,
  "ALTER TABLE api_tokens ADD COLUMN permissions TEXT;",
];

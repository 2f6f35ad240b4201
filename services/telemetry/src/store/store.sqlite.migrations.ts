import type { SqliteMigration } from "@sandgate/kit/storage/sqlite";
import { purgedIndex } from "@sandgate/kit/workspaces/sqlite-guards";
import { auditDetailsMigration, auditIndexMigration, auditMigration } from "./audit.sqlite.transactions.ts";

export const migrations: readonly SqliteMigration[] = [
  `CREATE TABLE guards (
     workspace_id TEXT PRIMARY KEY,
     deleted_at INTEGER,
     purged_at INTEGER
   ) STRICT, WITHOUT ROWID;
   CREATE INDEX guards_open_purges ON guards (workspace_id) WHERE deleted_at IS NOT NULL AND purged_at IS NULL;

   CREATE TABLE sandboxes (
     sandbox_id TEXT PRIMARY KEY,
     workspace_id TEXT NOT NULL REFERENCES guards,
     logs_sequence INTEGER NOT NULL DEFAULT 0,
     metrics_sequence INTEGER NOT NULL DEFAULT 0,
     text_bytes INTEGER NOT NULL DEFAULT 0,
     updated_at INTEGER NOT NULL
   ) STRICT, WITHOUT ROWID;
   CREATE INDEX sandboxes_by_workspace ON sandboxes (workspace_id);
   CREATE INDEX sandboxes_by_update ON sandboxes (updated_at);

   CREATE TABLE sources (
     sandbox_id TEXT NOT NULL REFERENCES sandboxes,
     container_id TEXT NOT NULL,
     kind TEXT NOT NULL,
     cursor TEXT NOT NULL,
     final INTEGER NOT NULL,
     PRIMARY KEY (sandbox_id, container_id, kind)
   ) STRICT, WITHOUT ROWID;

   -- Times are microseconds here. The body stands last, so that reading the rest touches none of it.
   CREATE TABLE chunks (
     id INTEGER PRIMARY KEY,
     sandbox_id TEXT NOT NULL REFERENCES sandboxes,
     kind TEXT NOT NULL,
     first_sequence INTEGER NOT NULL,
     last_sequence INTEGER NOT NULL,
     first_us INTEGER NOT NULL,
     last_us INTEGER NOT NULL,
     stdout_rows INTEGER NOT NULL,
     stderr_rows INTEGER NOT NULL,
     text_bytes INTEGER NOT NULL,
     body BLOB NOT NULL
   ) STRICT;
   CREATE UNIQUE INDEX chunks_by_sequence ON chunks (sandbox_id, kind, last_sequence);
   CREATE INDEX chunks_by_time ON chunks (sandbox_id, kind, last_us, first_sequence);
   CREATE INDEX chunks_by_age ON chunks (last_us);`,
  // log_bytes: the text_bytes of all its sandboxes. oldest_us: the first time of its oldest log chunk.
  `ALTER TABLE guards ADD COLUMN log_bytes INTEGER NOT NULL DEFAULT 0;
   UPDATE guards SET log_bytes =
     (SELECT coalesce(sum(text_bytes), 0) FROM sandboxes WHERE sandboxes.workspace_id = guards.workspace_id);
   CREATE INDEX guards_by_log_bytes ON guards (log_bytes) WHERE log_bytes > 0;

   ALTER TABLE sandboxes ADD COLUMN ended INTEGER NOT NULL DEFAULT 0;
   ALTER TABLE sandboxes ADD COLUMN oldest_us INTEGER;
   UPDATE sandboxes SET
     ended = NOT EXISTS (SELECT 1 FROM sources WHERE sources.sandbox_id = sandboxes.sandbox_id AND NOT final),
     oldest_us = (SELECT first_us FROM chunks WHERE chunks.sandbox_id = sandboxes.sandbox_id AND kind = 'logs'
       ORDER BY last_sequence LIMIT 1);
   CREATE INDEX sandboxes_ended_with_logs ON sandboxes (workspace_id, updated_at) WHERE ended AND text_bytes > 0;
   CREATE INDEX sandboxes_live_with_logs ON sandboxes (workspace_id, oldest_us) WHERE NOT ended AND text_bytes > 0;

   DROP INDEX chunks_by_time;
   CREATE INDEX chunks_by_window
     ON chunks (sandbox_id, kind, last_us, first_sequence, first_us, stdout_rows, stderr_rows);`,
  auditMigration,
  purgedIndex,
  auditIndexMigration,
  // The log_bytes of all guards.
  `CREATE TABLE log_total (bytes INTEGER NOT NULL) STRICT;
   INSERT INTO log_total SELECT coalesce(sum(log_bytes), 0) FROM guards;
   CREATE TRIGGER guards_log_bytes_changed AFTER UPDATE OF log_bytes ON guards BEGIN
     UPDATE log_total SET bytes = bytes + new.log_bytes - old.log_bytes;
   END;
   CREATE TRIGGER guards_log_bytes_gone AFTER DELETE ON guards WHEN old.log_bytes <> 0 BEGIN
     UPDATE log_total SET bytes = bytes - old.log_bytes;
   END;`,
  auditDetailsMigration,
];

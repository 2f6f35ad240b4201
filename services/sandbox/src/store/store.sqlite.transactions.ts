// Loaded by the database's writer thread: nothing heavy is imported here.
import type { SqliteMigration, Transaction, Transactions } from "@sandgate/kit/storage/sqlite";
import { sealedIndex } from "@sandgate/kit/storage/sqlite-sealed";
import { purgedIndex, purgeTransactions } from "@sandgate/kit/workspaces/sqlite-guards";
import { imageUseTransactions } from "./image-uses.sqlite.transactions.ts";
import { previewTransactions } from "./previews.sqlite.transactions.ts";
import { quotaOwnerTransactions } from "./quota-owners.sqlite.transactions.ts";
import { sandboxTransactions } from "./sandboxes.sqlite.transactions.ts";

export const migrations: readonly SqliteMigration[] = [
  `CREATE TABLE installation (id TEXT NOT NULL);
   CREATE TABLE sandboxes (
     id TEXT PRIMARY KEY,
     version INTEGER NOT NULL,
     workspace_id TEXT NOT NULL,
     name TEXT NOT NULL,
     state TEXT NOT NULL,
     created_at INTEGER NOT NULL,
     stopped_at INTEGER,
     cleaned_at INTEGER,
     record TEXT NOT NULL
   ) STRICT, WITHOUT ROWID;
   CREATE UNIQUE INDEX sandboxes_live_name ON sandboxes (workspace_id, name) WHERE state IN ('provisioning', 'ready');
   CREATE INDEX sandboxes_by_name ON sandboxes (workspace_id, name, created_at);
   CREATE INDEX sandboxes_newest ON sandboxes (workspace_id, created_at, id);
   CREATE INDEX sandboxes_unfinished ON sandboxes (id) WHERE cleaned_at IS NULL;
   CREATE INDEX sandboxes_uncleaned ON sandboxes (workspace_id) WHERE cleaned_at IS NULL;
   CREATE INDEX sandboxes_ended ON sandboxes (stopped_at) WHERE cleaned_at IS NOT NULL;
   CREATE TABLE guards (
     workspace_id TEXT PRIMARY KEY,
     live_count INTEGER NOT NULL DEFAULT 0,
     live_memory_mb INTEGER NOT NULL DEFAULT 0,
     deleted_at INTEGER,
     purged_at INTEGER
   ) STRICT, WITHOUT ROWID;
   CREATE INDEX guards_open_purges ON guards (workspace_id) WHERE deleted_at IS NOT NULL AND purged_at IS NULL;`,
  "CREATE INDEX guards_live ON guards (live_count, live_memory_mb) WHERE live_count > 0;",
  `CREATE INDEX sandboxes_by_state ON sandboxes (workspace_id, state, created_at, id);
   -- The labels of the records, with what lists of them need.
   CREATE TABLE labels (
     sandbox_id TEXT NOT NULL REFERENCES sandboxes (id) ON DELETE CASCADE,
     name TEXT NOT NULL,
     value TEXT NOT NULL,
     workspace_id TEXT NOT NULL,
     state TEXT NOT NULL,
     created_at INTEGER NOT NULL,
     PRIMARY KEY (sandbox_id, name)
   ) STRICT, WITHOUT ROWID;
   CREATE INDEX labels_newest ON labels (workspace_id, name, value, state, created_at, sandbox_id);`,
  {
    batches: `INSERT INTO labels (sandbox_id, name, value, workspace_id, state, created_at)
      SELECT s.id, label.key, label.value, s.workspace_id, s.state, s.created_at
      FROM (
        SELECT * FROM sandboxes
        WHERE id > (SELECT coalesce(max(sandbox_id), '') FROM labels) AND record ->> '$.labels' <> '{}'
        ORDER BY id LIMIT 1000
      ) AS s, json_each(s.record, '$.labels') AS label`,
  },
  `ALTER TABLE guards ADD COLUMN charged_to TEXT;
   ALTER TABLE guards ADD COLUMN charged_since INTEGER NOT NULL DEFAULT 0;
   CREATE INDEX guards_charged ON guards (charged_to, workspace_id, live_count, live_memory_mb) WHERE live_count > 0;`,
  "CREATE TABLE image_uses (name TEXT PRIMARY KEY, used_at INTEGER NOT NULL) STRICT, WITHOUT ROWID;",
  // For operators' lists over all workspaces.
  `CREATE INDEX sandboxes_of_all ON sandboxes (state, created_at, id);
   CREATE INDEX sandboxes_of_user ON sandboxes (record ->> '$.createdBy', state, created_at, id);`,
  // Labels may be long, and the record has them: lists need a hash of each alone.
  `CREATE TABLE label_keys (
     label BLOB NOT NULL,
     state TEXT NOT NULL,
     created_at INTEGER NOT NULL,
     sandbox_id TEXT NOT NULL,
     PRIMARY KEY (label, state, created_at, sandbox_id)
   ) STRICT, WITHOUT ROWID;
   CREATE TRIGGER labels_replaced AFTER DELETE ON labels BEGIN
     INSERT INTO label_keys (label, state, created_at, sandbox_id)
     VALUES (hash_texts(old.workspace_id, old.name, old.value), old.state, old.created_at, old.sandbox_id);
   END;`,
  {
    batches:
      "DELETE FROM labels WHERE (sandbox_id, name) IN (SELECT sandbox_id, name FROM labels ORDER BY sandbox_id LIMIT 1000)",
  },
  "DROP TABLE labels;",
  `ALTER TABLE guards ADD COLUMN record_bytes INTEGER NOT NULL DEFAULT 0;
   ALTER TABLE guards ADD COLUMN failures INTEGER NOT NULL DEFAULT 0;
   -- The end of the hour that they are counted in.
   ALTER TABLE guards ADD COLUMN failures_until INTEGER NOT NULL DEFAULT 0;
   CREATE INDEX sandboxes_cleaned ON sandboxes (workspace_id, cleaned_at) WHERE cleaned_at IS NOT NULL;`,
  purgedIndex,
  // Records are too large for a table without rowids, whose inner pages hold rows too.
  `CREATE TABLE records (
     id TEXT PRIMARY KEY,
     version INTEGER NOT NULL,
     workspace_id TEXT NOT NULL,
     name TEXT NOT NULL,
     state TEXT NOT NULL,
     created_at INTEGER NOT NULL,
     stopped_at INTEGER,
     cleaned_at INTEGER,
     record TEXT NOT NULL
   ) STRICT;`,
  {
    batches: `INSERT INTO records
      SELECT id, version, workspace_id, name, state, created_at, stopped_at, cleaned_at, record FROM sandboxes
      WHERE id > (SELECT coalesce(max(id), '') FROM records) ORDER BY id LIMIT 5000`,
  },
  `DROP TABLE sandboxes;
   ALTER TABLE records RENAME TO sandboxes;
   CREATE UNIQUE INDEX sandboxes_live_name ON sandboxes (workspace_id, name) WHERE state IN ('provisioning', 'ready');
   CREATE INDEX sandboxes_by_name ON sandboxes (workspace_id, name, created_at, id);
   CREATE INDEX sandboxes_newest ON sandboxes (workspace_id, created_at, id);
   CREATE INDEX sandboxes_unfinished ON sandboxes (id) WHERE cleaned_at IS NULL;
   CREATE INDEX sandboxes_unfinished_by_state ON sandboxes (state) WHERE cleaned_at IS NULL;
   CREATE INDEX sandboxes_uncleaned ON sandboxes (workspace_id) WHERE cleaned_at IS NULL;
   CREATE INDEX sandboxes_cleaned ON sandboxes (workspace_id, cleaned_at) WHERE cleaned_at IS NOT NULL;
   CREATE INDEX sandboxes_ended ON sandboxes (stopped_at) WHERE cleaned_at IS NOT NULL;
   CREATE INDEX sandboxes_by_state ON sandboxes (workspace_id, state, created_at, id);
   CREATE INDEX sandboxes_of_all ON sandboxes (state, created_at, id);
   CREATE INDEX sandboxes_of_user ON sandboxes (record ->> '$.createdBy', state, created_at, id);`,
  `ALTER TABLE sandboxes ADD COLUMN last_used_at INTEGER;
   -- Of the layers that are downloaded for it.
   ALTER TABLE sandboxes ADD COLUMN downloaded_bytes INTEGER;
   ALTER TABLE sandboxes ADD COLUMN total_bytes INTEGER;`,
  `-- The environment variables of sandboxes that have not ended.
   CREATE TABLE envs (id TEXT PRIMARY KEY, workspace_id TEXT NOT NULL, sealed BLOB NOT NULL) STRICT;
   ${sealedIndex({ table: "envs", column: "sealed" })}`,
  `CREATE TABLE previews (
     id TEXT PRIMARY KEY,
     sandbox_id TEXT NOT NULL,
     workspace_id TEXT NOT NULL,
     label TEXT NOT NULL,
     token_hash BLOB NOT NULL,
     port INTEGER NOT NULL,
     public INTEGER NOT NULL,
     host_header TEXT NOT NULL,
     created_by TEXT NOT NULL,
     created_at INTEGER NOT NULL,
     expires_at INTEGER NOT NULL
   ) STRICT;
   CREATE UNIQUE INDEX previews_by_label ON previews (label);
   CREATE INDEX previews_of_sandbox ON previews (sandbox_id, created_at, id);
   CREATE INDEX previews_of_user ON previews (workspace_id, created_by);
   -- Links that nobody opened yet.
   CREATE TABLE preview_links (
     hash BLOB PRIMARY KEY,
     preview_id TEXT NOT NULL REFERENCES previews (id) ON DELETE CASCADE,
     expires_at INTEGER NOT NULL
   ) STRICT, WITHOUT ROWID;
   CREATE INDEX preview_links_of_preview ON preview_links (preview_id, expires_at);`,
  `CREATE INDEX previews_of_creator ON previews (created_by, created_at);`,
];

export const transactions = {
  ...purgeTransactions,
  ...sandboxTransactions,
  ...quotaOwnerTransactions,
  ...imageUseTransactions,
  ...previewTransactions,

  installationId({ db }: Transaction, fresh: string): string {
    const row = db.get<{ id: string }>("SELECT id FROM installation");
    if (row) return row.id;
    db.run("INSERT INTO installation (id) VALUES (?)", fresh);
    return fresh;
  },
} satisfies Transactions;

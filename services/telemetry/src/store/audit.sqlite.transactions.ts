import type { SqliteMigration, Transaction, Transactions } from "@sandgate/kit/storage/sqlite";
import type { AuditEntry } from "../domain/audit.ts";
import { toRow } from "./audit.sqlite.rows.ts";

export const auditMigration: SqliteMigration = `
   -- Numbers are never used twice, also when the newest entries are removed.
   CREATE TABLE audit_entries (
     sequence INTEGER PRIMARY KEY AUTOINCREMENT,
     id TEXT NOT NULL UNIQUE,
     at INTEGER NOT NULL,
     workspace_id TEXT,
     actor_id TEXT,
     credential_kind TEXT,
     credential_id TEXT,
     address TEXT,
     action TEXT NOT NULL,
     target_type TEXT,
     target_id TEXT,
     outcome TEXT NOT NULL,
     request_id TEXT,
     count INTEGER NOT NULL
   ) STRICT;
   CREATE INDEX audit_entries_all ON audit_entries (at, id);
   CREATE INDEX audit_entries_by_actor ON audit_entries (actor_id, at, id);
   CREATE INDEX audit_entries_by_action ON audit_entries (action, at, id);
   CREATE INDEX audit_entries_of_workspace ON audit_entries (workspace_id, at, id);
   CREATE INDEX audit_entries_of_workspace_by_actor ON audit_entries (workspace_id, actor_id, at, id);
   CREATE INDEX audit_entries_of_workspace_by_action ON audit_entries (workspace_id, action, at, id);

   CREATE TABLE audit_copies (copy TEXT PRIMARY KEY, sequence INTEGER NOT NULL) STRICT, WITHOUT ROWID;`;

export const auditIndexMigration: SqliteMigration = `
   CREATE INDEX audit_entries_by_actor_by_action ON audit_entries (actor_id, action, at, id);
   CREATE INDEX audit_entries_of_workspace_by_actor_by_action ON audit_entries (workspace_id, actor_id, action, at, id);`;

/** What within its target, as JSON. */
export const auditDetailsMigration: SqliteMigration = "ALTER TABLE audit_entries ADD COLUMN target_details TEXT;";

export const auditTransactions = {
  appendAudit(tx: Transaction, entries: readonly AuditEntry[]): void {
    for (const entry of entries) {
      // The conflict is looked for first, as an ignored insert would use up a number.
      if (tx.db.get("SELECT 1 FROM audit_entries WHERE id = ?", entry.id)) continue;
      const row = toRow(entry);
      const columns = Object.keys(row);
      tx.db.run(
        `INSERT INTO audit_entries (${columns.join(", ")}) VALUES (${columns.map((name) => `:${name}`).join(", ")})`,
        { ...row },
      );
    }
  },

  sweepAudit(tx: Transaction, before: Date, limit: number): number {
    return tx.db.run(
      `DELETE FROM audit_entries WHERE sequence IN
         (SELECT sequence FROM audit_entries WHERE at < ? ORDER BY at LIMIT ?)`,
      before,
      limit,
    );
  },

  setAuditCursor(tx: Transaction, copy: string, sequence: number): void {
    tx.db.run(
      "INSERT INTO audit_copies (copy, sequence) VALUES (?, ?) ON CONFLICT DO UPDATE SET sequence = excluded.sequence",
      copy,
      sequence,
    );
  },
} satisfies Transactions;

import { IdempotencyRecordExists, idempotencyRecordKeptMs } from "./idempotency-record.ts";
import { sentKeptMs } from "./outbox-store.ts";
import type { SealedColumn } from "./sealed-values.ts";
import type { SqliteConnection } from "./sqlite-connection.ts";
import type { Transaction, Transactions } from "./transaction.ts";

/**
 * The kit's own tables, in every database. Times are epoch milliseconds by this machine's clock, which is the
 * database's clock.
 */
export const kitMigrations: readonly string[] = [
  `CREATE TABLE kit_outbox (
     id TEXT PRIMARY KEY,
     subject TEXT NOT NULL,
     bytes BLOB NOT NULL,
     staged_at INTEGER NOT NULL,
     sent_at INTEGER,
     sent_to TEXT
   ) STRICT;
   CREATE INDEX kit_outbox_unsent ON kit_outbox (staged_at) WHERE sent_at IS NULL;
   CREATE INDEX kit_outbox_sent ON kit_outbox (sent_at) WHERE sent_at IS NOT NULL;
   CREATE INDEX kit_outbox_sent_to ON kit_outbox (sent_to) WHERE sent_at IS NOT NULL;
   CREATE TABLE kit_inbox_events (
     consumer TEXT NOT NULL,
     event_id TEXT NOT NULL,
     seen_at INTEGER NOT NULL,
     PRIMARY KEY (consumer, event_id)
   ) STRICT, WITHOUT ROWID;
   CREATE INDEX kit_inbox_events_seen ON kit_inbox_events (seen_at);
   CREATE TABLE kit_inbox_versions (
     consumer TEXT NOT NULL,
     kind TEXT NOT NULL,
     entity_id TEXT NOT NULL,
     version INTEGER NOT NULL,
     seen_at INTEGER NOT NULL,
     PRIMARY KEY (consumer, kind, entity_id)
   ) STRICT, WITHOUT ROWID;
   CREATE INDEX kit_inbox_versions_seen ON kit_inbox_versions (seen_at);
   CREATE TABLE kit_answers (
     id TEXT PRIMARY KEY,
     sealed BLOB NOT NULL,
     expires_at INTEGER NOT NULL
   ) STRICT, WITHOUT ROWID;
   CREATE INDEX kit_answers_expires ON kit_answers (expires_at);
   CREATE TABLE kit_leases (
     name TEXT PRIMARY KEY,
     holder TEXT NOT NULL,
     epoch INTEGER NOT NULL,
     expires_at INTEGER NOT NULL
   ) STRICT, WITHOUT ROWID;`,
  `DROP TABLE kit_inbox_events;
   DROP TABLE kit_inbox_versions;
   ALTER TABLE kit_leases DROP COLUMN epoch;`,
  `ALTER TABLE kit_outbox ADD COLUMN refusals INTEGER NOT NULL DEFAULT 0;
   ALTER TABLE kit_outbox ADD COLUMN retry_at INTEGER;
   CREATE INDEX kit_outbox_refused ON kit_outbox (retry_at, staged_at) WHERE sent_at IS NULL;`,
  `ALTER TABLE kit_answers ADD COLUMN service TEXT;
   ALTER TABLE kit_answers ADD COLUMN workspace TEXT;`,
];

/** The transactions of the kit, which run in the writer thread. */
export const kitTransactions = {
  markSent(tx: Transaction, ids: readonly string[], bus: string): void {
    const now = Date.now();
    for (const id of ids) {
      tx.db.run(
        "UPDATE kit_outbox SET sent_at = ?, sent_to = ?, refusals = 0, retry_at = NULL WHERE id = ?",
        now,
        bus,
        id,
      );
    }
  },

  postpone(tx: Transaction, refused: readonly { id: string; until: Date }[]): void {
    for (const { id, until } of refused) {
      tx.db.run(
        "UPDATE kit_outbox SET refusals = refusals + 1, retry_at = ? WHERE id = ? AND sent_at IS NULL",
        until,
        id,
      );
    }
  },

  resend(tx: Transaction, bus: string, limit: number): number {
    // Two ranges let the index find the rows of other buses without reading those of this one.
    return tx.db.run(
      `UPDATE kit_outbox SET sent_at = NULL, sent_to = NULL WHERE id IN (
         SELECT id FROM kit_outbox WHERE sent_at IS NOT NULL AND (sent_to < :bus OR sent_to > :bus) LIMIT :limit)`,
      { bus, limit },
    );
  },

  sweepOutbox(tx: Transaction, limit: number): number {
    return tx.db.run(
      "DELETE FROM kit_outbox WHERE id IN (SELECT id FROM kit_outbox WHERE sent_at < ? LIMIT ?)",
      Date.now() - sentKeptMs,
      limit,
    );
  },

  sweepAnswers(tx: Transaction, limit: number): number {
    return tx.db.run(
      "DELETE FROM kit_answers WHERE id IN (SELECT id FROM kit_answers WHERE expires_at <= ? LIMIT ?)",
      Date.now(),
      limit,
    );
  },

  /** Returns which of these leases the holder has now. */
  acquireLeases(tx: Transaction, names: readonly string[], holder: string, ttlMs: number): string[] {
    const now = Date.now();
    return names.filter(
      (name) =>
        tx.db.run(
          `INSERT INTO kit_leases (name, holder, expires_at) VALUES (:name, :holder, :expiresAt)
           ON CONFLICT (name) DO UPDATE SET holder = excluded.holder, expires_at = excluded.expires_at
           WHERE holder = excluded.holder OR expires_at <= :now`,
          { name, holder, now, expiresAt: now + ttlMs },
        ) > 0,
    );
  },

  replaceSealed(tx: Transaction, at: SealedColumn, id: string, before: Uint8Array, after: Uint8Array): boolean {
    const { table, column } = at;
    return tx.db.run(`UPDATE ${table} SET ${column} = ? WHERE id = ? AND ${column} = ?`, after, id, before) > 0;
  },

  releaseLeases(tx: Transaction, names: readonly string[], holder: string): void {
    for (const name of names) {
      tx.db.run("UPDATE kit_leases SET expires_at = 0 WHERE name = ? AND holder = ?", name, holder);
    }
  },
} satisfies Transactions;

/** Creates what the functions of a transactions module get. `onPublish` is called when events were staged. */
export function createTransaction(db: SqliteConnection, onPublish: () => void): Transaction {
  return {
    db,
    publish(events) {
      for (const { id, subject, bytes } of events) {
        db.run(
          "INSERT INTO kit_outbox (id, subject, bytes, staged_at) VALUES (?, ?, ?, ?)",
          id,
          subject,
          bytes,
          Date.now(),
        );
      }
      if (events.length > 0) onPublish();
    },
    keepIdempotencyRecord(record) {
      if (!record) return;
      const now = Date.now();
      const taken = db.run(
        `INSERT INTO kit_answers (id, sealed, service, workspace, expires_at)
         VALUES (:id, :sealed, :service, :workspace, :expiresAt)
         ON CONFLICT DO UPDATE SET sealed = excluded.sealed, expires_at = excluded.expires_at
         WHERE expires_at <= :now`,
        {
          id: record.id,
          sealed: record.sealed,
          service: record.service,
          workspace: record.workspace,
          expiresAt: now + idempotencyRecordKeptMs,
          now,
        },
      );
      if (taken === 0) throw new IdempotencyRecordExists("Another call with this Idempotency-Key was first");
    },
  };
}

import {
  addRecordUsage,
  type IdempotencyRecord,
  IdempotencyRecordExists,
  idempotencyRecordKeptMs,
} from "./idempotency-record.ts";
import { type StagedEvent, sentKeptMs } from "./outbox-store.ts";
import type { SqliteConnection } from "./sqlite-connection.ts";
import { replaceSealed, sealedIndex } from "./sqlite-sealed.ts";
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
  `CREATE TABLE kit_answer_usages (
     owner TEXT PRIMARY KEY,
     bytes INTEGER NOT NULL,
     ends_at INTEGER NOT NULL
   ) STRICT, WITHOUT ROWID;
   CREATE INDEX kit_answer_usages_end ON kit_answer_usages (ends_at);`,
  // Answers are too large for a table without rowids, whose inner pages hold rows too.
  `CREATE TABLE kit_answers_with_rowids (
     id TEXT PRIMARY KEY,
     service TEXT,
     workspace TEXT,
     expires_at INTEGER NOT NULL,
     sealed BLOB NOT NULL
   ) STRICT;
   INSERT INTO kit_answers_with_rowids SELECT id, service, workspace, expires_at, sealed FROM kit_answers;
   DROP TABLE kit_answers;
   ALTER TABLE kit_answers_with_rowids RENAME TO kit_answers;
   CREATE INDEX kit_answers_expires ON kit_answers (expires_at);
   ${sealedIndex({ table: "kit_answers", column: "sealed" })}`,
];

/** 80 MiB of pages of the default size: more than telemetry needs to store rows while the disk is nearly full. */
const minFreePages = 20_480;

/** The transactions of the kit, which run in the writer thread. */
export const kitTransactions = {
  publishOnce(tx: Transaction, events: readonly StagedEvent[]): void {
    tx.publishOnce(events);
  },

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
    const sent = "SELECT id FROM kit_outbox INDEXED BY kit_outbox_sent_to WHERE sent_at IS NOT NULL AND sent_to";
    return tx.db.run(
      `UPDATE kit_outbox SET sent_at = NULL, sent_to = NULL
       WHERE id IN (${sent} < :bus UNION ALL ${sent} > :bus LIMIT :limit)`,
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

  sweepAnswerUsages(tx: Transaction, limit: number): number {
    return tx.db.run(
      "DELETE FROM kit_answer_usages WHERE owner IN (SELECT owner FROM kit_answer_usages WHERE ends_at <= ? LIMIT ?)",
      Date.now(),
      limit,
    );
  },

  /**
   * Gives up to `limit` free pages back to the file system, and returns how many. A quarter of the file, and at least
   * 80 MiB, stays for what comes next. A file that was made without auto_vacuum keeps all of its pages.
   */
  shrink({ db }: Transaction, limit: number): number {
    const countOf = (name: "freelist_count" | "page_count") => Number(db.get(`PRAGMA ${name}`)?.[name]);
    const free = countOf("freelist_count");
    const excess = free - Math.max(minFreePages, Math.floor(countOf("page_count") / 4));
    if (excess <= 0) return 0;
    // Read to its end, since each step frees one page.
    db.all(`PRAGMA incremental_vacuum(${Math.min(excess, limit)})`);
    return free - countOf("freelist_count");
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

  replaceSealed,

  releaseLeases(tx: Transaction, names: readonly string[], holder: string): void {
    for (const name of names) {
      tx.db.run("UPDATE kit_leases SET expires_at = 0 WHERE name = ? AND holder = ?", name, holder);
    }
  },
} satisfies Transactions;

function countRecord(db: SqliteConnection, record: IdempotencyRecord): void {
  const { owner } = record;
  const row = db.get<{ bytes: number; ends_at: number }>(
    "SELECT bytes, ends_at FROM kit_answer_usages WHERE owner = ?",
    owner,
  );
  const before = row && { bytes: row.bytes, endsAt: new Date(row.ends_at) };
  const { bytes, endsAt } = addRecordUsage(before, record, new Date());
  db.run(
    `INSERT INTO kit_answer_usages (owner, bytes, ends_at) VALUES (?, ?, ?)
     ON CONFLICT DO UPDATE SET bytes = excluded.bytes, ends_at = excluded.ends_at`,
    owner,
    bytes,
    endsAt,
  );
}

/** Creates what the functions of a transactions module get. `onPublish` is called when events were staged. */
export function createTransaction(db: SqliteConnection, onPublish: () => void): Transaction {
  function stage(events: readonly StagedEvent[], onConflict: "ABORT" | "IGNORE"): void {
    for (const { id, subject, bytes } of events) {
      db.run(
        `INSERT OR ${onConflict} INTO kit_outbox (id, subject, bytes, staged_at) VALUES (?, ?, ?, ?)`,
        id,
        subject,
        bytes,
        Date.now(),
      );
    }
    if (events.length > 0) onPublish();
  }
  return {
    db,
    publish: (events) => stage(events, "ABORT"),
    publishOnce: (events) => stage(events, "IGNORE"),
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
      countRecord(db, record);
    },
  };
}

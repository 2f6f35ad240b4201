import type { StagedEvent } from "../storage/outbox-store.ts";
import type { Transaction, Transactions } from "../storage/transaction.ts";
import { matchesSubject } from "./subject.ts";

/** How long a message is kept for consumers that are added later. */
const messageKeptMs = 7 * 24 * 60 * 60 * 1000;

/**
 * Times are epoch milliseconds. A delivery is a row until its handler succeeds. One with `parked_at` is a dead letter,
 * which stays.
 */
export const busMigrations: readonly string[] = [
  `CREATE TABLE identity (id TEXT NOT NULL) STRICT;
   INSERT INTO identity VALUES (lower(hex(randomblob(16))));
   CREATE TABLE messages (
     seq INTEGER PRIMARY KEY AUTOINCREMENT,
     event_id TEXT NOT NULL UNIQUE,
     subject TEXT NOT NULL,
     bytes BLOB NOT NULL,
     published_at INTEGER NOT NULL
   ) STRICT;
   CREATE INDEX messages_published ON messages (published_at);
   CREATE TABLE consumers (name TEXT PRIMARY KEY, subjects TEXT NOT NULL) STRICT, WITHOUT ROWID;
   CREATE TABLE deliveries (
     consumer TEXT NOT NULL REFERENCES consumers (name),
     seq INTEGER NOT NULL REFERENCES messages (seq),
     attempts INTEGER NOT NULL DEFAULT 0,
     due_at INTEGER NOT NULL,
     error TEXT,
     parked_at INTEGER,
     PRIMARY KEY (consumer, seq)
   ) STRICT, WITHOUT ROWID;
   CREATE INDEX deliveries_due ON deliveries (consumer, due_at) WHERE parked_at IS NULL;
   CREATE INDEX deliveries_of_message ON deliveries (seq);`,
];

/** The transactions of the local bus. */
export const transactions = {
  publish(tx: Transaction, events: readonly StagedEvent[]): void {
    const now = Date.now();
    const consumers = tx.db
      .all<{ name: string; subjects: string }>("SELECT name, subjects FROM consumers")
      .map(({ name, subjects }) => ({ name, subjects: subjects.split(" ") }));
    for (const { id, subject, bytes } of events) {
      const stored = tx.db.get<{ seq: number }>(
        `INSERT INTO messages (event_id, subject, bytes, published_at) VALUES (?, ?, ?, ?)
         ON CONFLICT (event_id) DO NOTHING RETURNING seq`,
        id,
        subject,
        bytes,
        now,
      );
      if (!stored) continue;
      for (const consumer of consumers) {
        if (isWanted(consumer.subjects, subject)) addDelivery(tx, consumer.name, stored.seq, now);
      }
    }
  },

  /**
   * Creates the consumer or changes its subjects. It then gets what is kept on new subjects, and nothing more on the
   * others.
   */
  subscribe(tx: Transaction, consumer: string, subjects: readonly string[]): void {
    const known = tx.db.get<{ subjects: string }>("SELECT subjects FROM consumers WHERE name = ?", consumer);
    const before = known?.subjects.split(" ") ?? [];
    if (known?.subjects === subjects.join(" ")) return;
    tx.db.run(
      "INSERT INTO consumers (name, subjects) VALUES (?, ?) ON CONFLICT DO UPDATE SET subjects = excluded.subjects",
      consumer,
      subjects.join(" "),
    );
    const now = Date.now();
    for (const { seq, subject } of tx.db.all<{ seq: number; subject: string }>("SELECT seq, subject FROM messages")) {
      const wanted = isWanted(subjects, subject);
      if (wanted === isWanted(before, subject)) continue;
      if (wanted) addDelivery(tx, consumer, seq, now);
      else tx.db.run("DELETE FROM deliveries WHERE consumer = ? AND seq = ?", consumer, seq);
    }
  },

  acknowledge(tx: Transaction, consumer: string, seq: number): void {
    tx.db.run("DELETE FROM deliveries WHERE consumer = ? AND seq = ?", consumer, seq);
  },

  /** Records a failed attempt. The next one is due at that time; without a next one the event is a dead letter. */
  fail(tx: Transaction, consumer: string, seq: number, error: string, next: { dueAt: number } | undefined): void {
    tx.db.run(
      "UPDATE deliveries SET attempts = attempts + 1, error = ?, due_at = ?, parked_at = ? WHERE consumer = ? AND seq = ?",
      error,
      next?.dueAt ?? 0,
      next ? null : Date.now(),
      consumer,
      seq,
    );
  },

  /** Returns false if there is no such dead letter. */
  removeDeadLetter(tx: Transaction, consumer: string, eventId: string): boolean {
    const removed = tx.db.run(
      `DELETE FROM deliveries WHERE consumer = ? AND parked_at IS NOT NULL
         AND seq = (SELECT seq FROM messages WHERE event_id = ?)`,
      consumer,
      eventId,
    );
    return removed > 0;
  },

  /** Deletes up to `limit` old messages that every consumer has handled, and returns how many. */
  trim(tx: Transaction, limit: number): number {
    return tx.db.run(
      `DELETE FROM messages WHERE seq IN (
         SELECT seq FROM messages WHERE published_at < ?
           AND NOT EXISTS (SELECT 1 FROM deliveries WHERE deliveries.seq = messages.seq) LIMIT ?)`,
      Date.now() - messageKeptMs,
      limit,
    );
  },
} satisfies Transactions;

function isWanted(patterns: readonly string[], subject: string): boolean {
  return patterns.some((pattern) => matchesSubject(pattern, subject));
}

function addDelivery(tx: Transaction, consumer: string, seq: number, dueAt: number): void {
  tx.db.run("INSERT OR IGNORE INTO deliveries (consumer, seq, due_at) VALUES (?, ?, ?)", consumer, seq, dueAt);
}

import type { StagedEvent } from "../storage/outbox-store.ts";
import type { Transaction, Transactions } from "../storage/transaction.ts";
import { matchesSubject } from "./subject.ts";

/** How long a message is kept for consumers that are added later. */
const messageKeptMs = 7 * 24 * 60 * 60 * 1000;

/**
 * Times are epoch milliseconds. A delivery is a row until its handler succeeds, or has failed for good: then it is a
 * dead letter. `fills` are the changes of consumers' subjects that kept messages have yet to follow.
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
  `CREATE TABLE dead_letters (
     consumer TEXT NOT NULL REFERENCES consumers (name),
     event_id TEXT NOT NULL,
     attempts INTEGER NOT NULL,
     error TEXT NOT NULL,
     failed_at INTEGER NOT NULL,
     bytes BLOB NOT NULL,
     PRIMARY KEY (consumer, event_id)
   ) STRICT;
   INSERT INTO dead_letters (consumer, event_id, attempts, error, failed_at, bytes)
     SELECT consumer, event_id, attempts, coalesce(error, ''), parked_at, bytes
     FROM deliveries JOIN messages USING (seq) WHERE parked_at IS NOT NULL;
   DELETE FROM deliveries WHERE parked_at IS NOT NULL;
   DROP INDEX deliveries_due;
   ALTER TABLE deliveries DROP COLUMN parked_at;
   ALTER TABLE deliveries DROP COLUMN error;
   CREATE INDEX deliveries_due ON deliveries (consumer, due_at);
   ALTER TABLE consumers ADD COLUMN dead_letters INTEGER NOT NULL DEFAULT 0;
   UPDATE consumers SET dead_letters = (SELECT count(*) FROM dead_letters WHERE consumer = name);
   CREATE TABLE fills (
     id INTEGER PRIMARY KEY,
     consumer TEXT NOT NULL REFERENCES consumers (name),
     subjects_before TEXT NOT NULL,
     subjects TEXT NOT NULL,
     -- The last message that has followed, and the last one that will.
     position INTEGER NOT NULL,
     last INTEGER NOT NULL
   ) STRICT;
   CREATE INDEX fills_by_consumer ON fills (consumer, id);`,
  "CREATE INDEX dead_letters_by_age ON dead_letters (failed_at);",
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
        if (isWanted(consumer.subjects, subject)) addDelivery(tx.db, consumer.name, stored.seq, now);
      }
    }
  },

  /**
   * Creates the consumer or changes its subjects, for what is published from now on. What is kept follows by `fill`:
   * the consumer gets what is on new subjects, and nothing more on the others.
   */
  subscribe(tx: Transaction, consumer: string, subjects: readonly string[]): void {
    const known = tx.db.get<{ subjects: string }>("SELECT subjects FROM consumers WHERE name = ?", consumer);
    const [before, after] = [known?.subjects ?? "", subjects.join(" ")];
    if (known && before === after) return;
    tx.db.run(
      "INSERT INTO consumers (name, subjects) VALUES (?, ?) ON CONFLICT DO UPDATE SET subjects = excluded.subjects",
      consumer,
      after,
    );
    tx.db.run(
      `INSERT INTO fills (consumer, subjects_before, subjects, position, last)
       SELECT ?, ?, ?, 0, coalesce(max(seq), 0) FROM messages`,
      consumer,
      before,
      after,
    );
  },

  /**
   * Lets up to `limit` kept messages follow the changes of the consumer's subjects, the oldest change first. Returns
   * whether there may be more.
   */
  fill({ db }: Transaction, consumer: string, limit: number): boolean {
    const change = db.get<{ id: number; before: string; after: string; position: number; last: number }>(
      `SELECT id, subjects_before AS before, subjects AS after, position, last FROM fills
       WHERE consumer = ? ORDER BY id LIMIT 1`,
      consumer,
    );
    if (!change) return false;
    const [before, after] = [change.before.split(" "), change.after.split(" ")];
    const messages = db.all<{ seq: number; subject: string }>(
      "SELECT seq, subject FROM messages WHERE seq > ? AND seq <= ? ORDER BY seq LIMIT ?",
      change.position,
      change.last,
      limit,
    );
    const now = Date.now();
    for (const { seq, subject } of messages) {
      const wanted = isWanted(after, subject);
      if (wanted === isWanted(before, subject)) continue;
      if (wanted) addDelivery(db, consumer, seq, now);
      else db.run("DELETE FROM deliveries WHERE consumer = ? AND seq = ?", consumer, seq);
    }
    const last = messages.length === limit ? messages.at(-1) : undefined;
    if (last) db.run("UPDATE fills SET position = ? WHERE id = ?", last.seq, change.id);
    else db.run("DELETE FROM fills WHERE id = ?", change.id);
    return true;
  },

  acknowledge(tx: Transaction, consumer: string, seq: number): void {
    tx.db.run("DELETE FROM deliveries WHERE consumer = ? AND seq = ?", consumer, seq);
  },

  /** Records a failed attempt, after which the next one is due at that time. */
  postpone(tx: Transaction, consumer: string, seq: number, dueAt: number): void {
    tx.db.run(
      "UPDATE deliveries SET attempts = attempts + 1, due_at = ? WHERE consumer = ? AND seq = ?",
      dueAt,
      consumer,
      seq,
    );
  },

  /** Makes the event a dead letter after its last attempt. */
  giveUp({ db }: Transaction, consumer: string, seq: number, error: string): void {
    const added = db.run(
      `INSERT OR IGNORE INTO dead_letters (consumer, event_id, attempts, error, failed_at, bytes)
       SELECT consumer, event_id, attempts + 1, ?, ?, bytes FROM deliveries JOIN messages USING (seq)
       WHERE consumer = ? AND seq = ?`,
      error,
      Date.now(),
      consumer,
      seq,
    );
    db.run("UPDATE consumers SET dead_letters = dead_letters + ? WHERE name = ?", added, consumer);
    db.run("DELETE FROM deliveries WHERE consumer = ? AND seq = ?", consumer, seq);
  },

  removeDeadLetter,

  /** Deletes up to `limit` dead letters from before this time, and returns how many. */
  trimDeadLetters(tx: Transaction, before: Date, limit: number): number {
    const old = tx.db.all<{ consumer: string; eventId: string }>(
      "SELECT consumer, event_id AS eventId FROM dead_letters WHERE failed_at < ? LIMIT ?",
      before,
      limit,
    );
    for (const { consumer, eventId } of old) removeDeadLetter(tx, consumer, eventId);
    return old.length;
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

/** Returns false if there is no such dead letter. */
function removeDeadLetter({ db }: Transaction, consumer: string, eventId: string): boolean {
  const removed = db.run("DELETE FROM dead_letters WHERE consumer = ? AND event_id = ?", consumer, eventId);
  db.run("UPDATE consumers SET dead_letters = dead_letters - ? WHERE name = ?", removed, consumer);
  return removed > 0;
}

function isWanted(patterns: readonly string[], subject: string): boolean {
  return patterns.some((pattern) => matchesSubject(pattern, subject));
}

function addDelivery(db: Transaction["db"], consumer: string, seq: number, dueAt: number): void {
  db.run("INSERT OR IGNORE INTO deliveries (consumer, seq, due_at) VALUES (?, ?, ?)", consumer, seq, dueAt);
}

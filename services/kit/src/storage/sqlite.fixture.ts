import { threadId } from "node:worker_threads";
import { DomainError } from "../base/domain-error.ts";
import type { IdempotencyRecord } from "./idempotency-record.ts";
import type { StagedEvent } from "./outbox-store.ts";
import type { Queries, QueryConnection } from "./queries.ts";
import type { Transaction, Transactions } from "./transaction.ts";

export const migrations = [
  `CREATE TABLE notes (id TEXT PRIMARY KEY, parent TEXT REFERENCES notes (id) DEFERRABLE INITIALLY DEFERRED) STRICT;`,
];

/** Says that the thread is here, and holds it until the gate is opened. */
function waitAt(gate: Int32Array<SharedArrayBuffer>): void {
  Atomics.store(gate, 0, 1);
  Atomics.notify(gate, 0);
  Atomics.wait(gate, 1, 0);
}

/** What the tests of the kit write. */
export const transactions = {
  addNote(
    tx: Transaction,
    id: string,
    more: { parent?: string; events?: readonly StagedEvent[]; record?: IdempotencyRecord | undefined } = {},
  ): string {
    tx.db.run("INSERT INTO notes (id, parent) VALUES (?, ?)", id, more.parent);
    tx.publish(more.events ?? []);
    tx.keepIdempotencyRecord(more.record);
    return id;
  },
  moveNote(tx: Transaction, id: string, parent: string): void {
    tx.db.run("UPDATE notes SET parent = ? WHERE id = ?", parent, id);
  },
  addNoteAndRefuse(tx: Transaction, id: string): never {
    tx.db.run("INSERT INTO notes (id) VALUES (?)", id);
    throw new DomainError("CONFLICT", "refused", {
      hint: "try another",
      violations: [{ field: "id", issue: "is refused" }],
      retryAfterSeconds: 7,
      callersFault: true,
      errno: "EDQUOT",
    });
  },
  async addNoteLater(tx: Transaction, id: string): Promise<void> {
    tx.db.run("INSERT INTO notes (id) VALUES (?)", id);
  },
  answerFunction(tx: Transaction, id: string): () => void {
    tx.db.run("INSERT INTO notes (id) VALUES (?)", id);
    return () => undefined;
  },
  threadId(): number {
    return threadId;
  },
  endThread(): void {
    process.exit(0);
  },
  throwInThread(): void {
    setImmediate(() => {
      throw new Error("a fault in the writer thread");
    });
  },
  /** Holds the writer thread until the gate is opened, so that what is written meanwhile makes one group. */
  hold(_: Transaction, gate: Int32Array<SharedArrayBuffer>): void {
    waitAt(gate);
  },
} satisfies Transactions;

function listNotes(db: QueryConnection): string[] {
  return db.all<{ id: string }>("SELECT id FROM notes ORDER BY id").map(({ id }) => id);
}

/** What the tests of the kit read. */
export const queries = {
  listNotes,
  /** Lists the notes, and again once the gate is opened. */
  listNotesTwice(db: QueryConnection, gate: Int32Array<SharedArrayBuffer>): [string[], string[]] {
    const before = listNotes(db);
    waitAt(gate);
    return [before, listNotes(db)];
  },
  /** Counts itself. */
  countUp(_: QueryConnection, count: Int32Array<SharedArrayBuffer>): void {
    Atomics.add(count, 0, 1);
    Atomics.notify(count, 0);
  },
  refuse(): never {
    throw new DomainError("CONFLICT", "refused", { hint: "ask another" });
  },
  deleteNotes(db: QueryConnection): void {
    db.all("DELETE FROM notes");
  },
  async listNotesLater(db: QueryConnection): Promise<string[]> {
    return listNotes(db);
  },
  answerFunction(): () => void {
    return () => undefined;
  },
  endThread(): void {
    process.exit(0);
  },
  throwInThread(): void {
    setImmediate(() => {
      throw new Error("a fault in the reader thread");
    });
  },
} satisfies Queries;

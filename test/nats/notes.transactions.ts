import type { StagedEvent } from "@sandgate/kit/events/outbox";
import type { Transaction, Transactions } from "@sandgate/kit/storage/transaction";

export const migrations = [
  `CREATE TABLE notes (id TEXT PRIMARY KEY) STRICT;
   CREATE TABLE effects (note TEXT PRIMARY KEY) STRICT;`,
];

/** What the tests write: one side states notes and what to say of them, the other what it heard. */
export const transactions = {
  addNote(tx: Transaction, id: string, event: StagedEvent): void {
    tx.db.run("INSERT INTO notes (id) VALUES (?)", id);
    tx.publish([event]);
  },
  noteEffect(tx: Transaction, note: string): void {
    tx.db.run("INSERT INTO effects (note) VALUES (?) ON CONFLICT DO NOTHING", note);
  },
} satisfies Transactions;

import type { Transaction } from "@sandgate/kit/storage/sqlite";

/** A method of a port as a transaction in the writer thread. */
export type TransactionOf<M extends (...args: never[]) => Promise<unknown>> = (
  tx: Transaction,
  ...args: Parameters<M>
) => Awaited<ReturnType<M>>;

type Value = string | number | boolean | Uint8Array | Date | undefined;

/** Inserts a row. The table and the columns are the code's own words. */
export function insert({ db }: Transaction, table: string, row: Readonly<Record<string, Value>>): void {
  const columns = Object.keys(row);
  db.run(`INSERT INTO ${table} (${columns}) VALUES (${columns.map((name) => `:${name}`)})`, row);
}

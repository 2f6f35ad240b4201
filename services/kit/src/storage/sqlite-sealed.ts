import type { QueryConnection } from "./queries.ts";
import type { SealedChange, SealedColumn, SealedRow } from "./sealed-values.ts";
import { headOf } from "./sealing.ts";
import type { Transaction } from "./transaction.ts";

/** The number that a hexadecimal digit stands for, as SQL. */
const digit = (position: number, column: string) =>
  `instr('123456789ABCDEF', substr(hex(substr(${column}, 2, 1)), ${position}, 1))`;

/** The head of a sealed value (`headOf`) as SQL. Migrations have this text, so it never changes. */
const headIn = (column: string) => `substr(${column}, 1, 2 + 16 * ${digit(1, column)} + ${digit(2, column)})`;

const nameOfIndex = (table: string, column: string) => `${table}_${column}_heads`;

/** A step of a migration: the index in which the values of each key are together. Every sealed column has one. */
export function sealedIndex({ table, column }: Pick<SealedColumn, "table" | "column">): string {
  return `CREATE INDEX ${nameOfIndex(table, column)} ON ${table} (${headIn(column)}, id);`;
}

/** Reads those that the position's own key seals, and then those of the keys that follow, but for the given one. */
export function listOthers(
  db: QueryConnection,
  { table, column, workspace = "NULL", service = "NULL" }: SealedColumn,
  keyId: string,
  limit: number,
  after: SealedRow | undefined,
): SealedRow[] {
  const head = headIn(column);
  const select = `SELECT id, ${column} AS sealed, ${workspace} AS workspace, ${service} AS service
    FROM ${table} INDEXED BY ${nameOfIndex(table, column)} WHERE ${head}`;
  const last = after ? after.sealed.subarray(0, 2 + (after.sealed[1] ?? 0)) : new Uint8Array();
  const position = { last, current: headOf(keyId) };
  const rows: SealedRow[] = [];
  const read = (which: string, more: Record<string, string | Uint8Array>) => {
    const found = db.all<{ id: string; sealed: Uint8Array; workspace: string | null; service: string | null }>(
      `${select} ${which} LIMIT :limit`,
      { ...more, limit: limit - rows.length },
    );
    for (const row of found) {
      rows.push({ ...row, workspace: row.workspace ?? undefined, service: row.service ?? undefined });
    }
  };
  read("= :last AND id > :id ORDER BY id", { last, id: after?.id ?? "" });
  read(`> :last AND ${head} < :current ORDER BY ${head}, id`, position);
  read(`> max(:last, :current) ORDER BY ${head}, id`, position);
  return rows;
}

export function replaceSealed(
  tx: Transaction,
  { table, column }: SealedColumn,
  changes: readonly SealedChange[],
): string[] {
  const replaced = changes.filter(
    ({ id, before, after }) =>
      tx.db.run(`UPDATE ${table} SET ${column} = ? WHERE id = ? AND ${column} = ?`, after, id, before) > 0,
  );
  return replaced.map(({ id }) => id);
}

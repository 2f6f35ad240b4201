import { DatabaseSync } from "node:sqlite";
import { vi } from "vitest";

/**
 * How SQLite goes through the file for each statement that the work prepares on this thread, which it must not have
 * before.
 */
export async function planStatements(file: string, work: () => unknown): Promise<string[]> {
  const prepare = vi.spyOn(DatabaseSync.prototype, "prepare");
  const prepared: string[] = [];
  try {
    await work();
    prepared.push(...prepare.mock.calls.map(([sql]) => sql));
  } finally {
    prepare.mockRestore();
  }
  const db = new DatabaseSync(file, { readOnly: true });
  try {
    return prepared.flatMap((sql) =>
      db
        .prepare(`EXPLAIN QUERY PLAN ${sql}`)
        .all()
        .map(({ detail }) => String(detail)),
    );
  } finally {
    db.close();
  }
}

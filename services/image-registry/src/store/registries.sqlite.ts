import type { SqliteDatabase } from "@sandgate/kit/storage/sqlite";
import type { registryTransactions } from "./registries.sqlite.transactions.ts";
import type { Registries } from "./registries.ts";
import type { queries } from "./store.sqlite.queries.ts";
import { registryTable } from "./tables.sqlite.ts";

export function createRegistries({
  read,
  query,
  write,
}: SqliteDatabase<typeof registryTransactions, typeof queries>): Registries {
  return {
    list: query.listRegistries,
    create: write.createRegistry,
    update: write.updateRegistry,
    delete: write.deleteRegistry,

    async find(registryId, workspaceId) {
      const sql = `SELECT ${registryTable.columns} FROM registries WHERE id = ? AND workspace_id = ?`;
      const row = read.get(sql, registryId, workspaceId);
      return row && registryTable.toRecord(row);
    },
  };
}

import type { Transaction } from "@sandgate/kit/storage/sqlite";
import { purgeTransactions } from "@sandgate/kit/workspaces/sqlite-guards";
import { imageTransactions } from "./images.sqlite.transactions.ts";
import { registryTransactions } from "./registries.sqlite.transactions.ts";
import { verifiedLayerTransactions } from "./verified-layers.sqlite.transactions.ts";

export const transactions = {
  ...imageTransactions,
  ...registryTransactions,
  ...verifiedLayerTransactions,
  ...purgeTransactions,

  deletePurgeBatch({ db }: Transaction, workspaceId: string, limit: number): boolean {
    const deleteFrom = (table: string) =>
      db.run(
        `DELETE FROM ${table} WHERE id IN (SELECT id FROM ${table} WHERE workspace_id = ? LIMIT ?)`,
        workspaceId,
        limit,
      );
    return deleteFrom("images") + deleteFrom("registries") === 0;
  },
};

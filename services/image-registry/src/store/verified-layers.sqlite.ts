import type { SqliteDatabase } from "@sandgate/kit/storage/sqlite";
import type { verifiedLayerTransactions } from "./verified-layers.sqlite.transactions.ts";
import type { VerifiedLayers } from "./verified-layers.ts";

export function createVerifiedLayers({
  read,
  write,
}: SqliteDatabase<typeof verifiedLayerTransactions>): VerifiedLayers {
  return {
    put: write.putVerifiedLayers,
    deleteBefore: write.deleteVerifiedBefore,

    async count() {
      return read.get<{ layers: number }>("SELECT layers FROM verified_layer_count")?.layers ?? 0;
    },

    async find(host, digests) {
      return read
        .all<{ digest: string; diff_id: string }>(
          `SELECT digest, diff_id FROM verified_layers
           WHERE host = ? AND digest IN (SELECT value FROM json_each(?))`,
          host,
          JSON.stringify(digests),
        )
        .map(({ digest, diff_id }) => ({ digest, diffId: diff_id }));
    },
  };
}

import type { TransactionOf } from "@sandgate/kit/storage/sqlite";
import type { VerifiedLayers } from "./verified-layers.ts";

export const verifiedLayerTransactions = {
  putVerifiedLayers(tx, host, layers, at) {
    for (const { digest, diffId } of layers) {
      tx.db.run(
        `INSERT INTO verified_layers (host, digest, diff_id, verified_at) VALUES (?, ?, ?, ?)
         ON CONFLICT (host, digest) DO UPDATE SET diff_id = excluded.diff_id, verified_at = excluded.verified_at`,
        host,
        digest,
        diffId,
        at,
      );
    }
  },

  deleteVerifiedBefore(tx, before, limit) {
    return tx.db.run(
      `DELETE FROM verified_layers WHERE (host, digest) IN
         (SELECT host, digest FROM verified_layers WHERE verified_at < ? ORDER BY verified_at LIMIT ?)`,
      before,
      limit,
    );
  },
} satisfies {
  putVerifiedLayers: TransactionOf<VerifiedLayers["put"]>;
  deleteVerifiedBefore: TransactionOf<VerifiedLayers["deleteBefore"]>;
};

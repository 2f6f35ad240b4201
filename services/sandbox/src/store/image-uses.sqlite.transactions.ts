import type { Transaction, Transactions } from "@sandgate/kit/storage/sqlite";
import type { ImageUse } from "./image-uses.ts";

export const imageUseTransactions = {
  recordImageUse({ db }: Transaction, { name, at }: ImageUse): void {
    db.run(
      `INSERT INTO image_uses (name, used_at) VALUES (?, ?)
       ON CONFLICT (name) DO UPDATE SET used_at = max(used_at, excluded.used_at)`,
      name,
      at,
    );
  },

  forgetImageUses({ db }: Transaction, names: readonly string[]): void {
    db.run("DELETE FROM image_uses WHERE name IN (SELECT value FROM json_each(?))", JSON.stringify(names));
  },
} satisfies Transactions;

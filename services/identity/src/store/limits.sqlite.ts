import { addMs } from "@sandgate/kit/base/time";
import type { SqliteDatabase } from "@sandgate/kit/storage/sqlite";
import { keptMs } from "../domain/retention.ts";
import type { limitTransactions } from "./limits.sqlite.transactions.ts";
import type { LimitStore } from "./limits.ts";

export const limitMigration = `CREATE TABLE known_networks (
     network BLOB PRIMARY KEY,
     user_id TEXT NOT NULL,
     seen_at INTEGER NOT NULL
   ) STRICT;
   CREATE INDEX known_networks_user ON known_networks (user_id);
   CREATE INDEX known_networks_seen ON known_networks (seen_at);`;

export function createLimitStore({
  read,
  write,
}: Pick<SqliteDatabase<typeof limitTransactions>, "read" | "write">): LimitStore {
  return {
    spend: write.spend,
    noteNetwork: write.noteNetwork,
    async isKnownNetwork(userId, network, now) {
      const known = read.get(
        "SELECT 1 FROM known_networks WHERE network = ? AND user_id = ? AND seen_at > ?",
        network,
        userId,
        addMs(now, -keptMs.knownNetworks),
      );
      return known !== undefined;
    },
  };
}

import { addMs } from "@sandgate/kit/base/time";
import type { SqliteDatabase } from "@sandgate/kit/storage/sqlite";
import { keptMs } from "../domain/retention.ts";
import type { knownNetworkTransactions } from "./known-networks.sqlite.transactions.ts";
import type { KnownNetworks } from "./known-networks.ts";

export function createKnownNetworks({ read, write }: SqliteDatabase<typeof knownNetworkTransactions>): KnownNetworks {
  return {
    add: write.addKnownNetwork,

    async has(userId, network, now) {
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

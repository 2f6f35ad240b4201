import type { Transactions } from "@sandgate/kit/storage/sqlite";
import type { KnownNetworks } from "./known-networks.ts";
import type { TransactionOf } from "./transaction.sqlite.ts";

const addKnownNetwork: TransactionOf<KnownNetworks["add"]> = (tx, userId, network, now) => {
  tx.db.run(
    `INSERT INTO known_networks (network, user_id, seen_at) VALUES (?, ?, ?)
     ON CONFLICT DO UPDATE SET seen_at = excluded.seen_at`,
    network,
    userId,
    now,
  );
};

export const knownNetworkTransactions = { addKnownNetwork } satisfies Transactions;

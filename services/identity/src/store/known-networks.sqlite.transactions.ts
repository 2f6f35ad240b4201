import type { Transaction, Transactions } from "@sandgate/kit/storage/sqlite";

function addKnownNetwork(tx: Transaction, userId: string, network: Uint8Array, now: Date): void {
  tx.db.run(
    `INSERT INTO known_networks (network, user_id, seen_at) VALUES (?, ?, ?)
     ON CONFLICT DO UPDATE SET seen_at = excluded.seen_at`,
    network,
    userId,
    now,
  );
}

export const knownNetworkTransactions = { addKnownNetwork } satisfies Transactions;

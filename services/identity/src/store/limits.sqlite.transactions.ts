import { addMs } from "@sandgate/kit/base/time";
import type { Transaction, Transactions } from "@sandgate/kit/storage/sqlite";
import type { Budget, Overspent } from "../domain/rate-counters.ts";

function spend(tx: Transaction, budgets: readonly Budget[], now: Date): Overspent | undefined {
  const windows = budgets.map(({ key, limit, windowMs }) => {
    const known = tx.db.get<{ used: number; ends_at: number }>(
      "SELECT used, ends_at FROM request_windows WHERE key = ? AND ends_at > ?",
      key,
      now,
    );
    return { key, limit, used: known?.used ?? 0, endsAt: known ? new Date(known.ends_at) : addMs(now, windowMs) };
  });
  for (const [index, { used, limit, endsAt }] of windows.entries()) {
    if (used >= limit) return { index, endsAt };
  }
  for (const { key, used, endsAt } of windows) {
    tx.db.run(
      `INSERT INTO request_windows (key, used, ends_at) VALUES (?, ?, ?)
       ON CONFLICT DO UPDATE SET used = excluded.used, ends_at = excluded.ends_at`,
      key,
      used + 1,
      endsAt,
    );
  }
  return undefined;
}

function noteNetwork(tx: Transaction, userId: string, network: Uint8Array, now: Date): void {
  tx.db.run(
    `INSERT INTO known_networks (network, user_id, seen_at) VALUES (?, ?, ?)
     ON CONFLICT DO UPDATE SET seen_at = excluded.seen_at`,
    network,
    userId,
    now,
  );
}

export const limitTransactions = { spend, noteNetwork } satisfies Transactions;

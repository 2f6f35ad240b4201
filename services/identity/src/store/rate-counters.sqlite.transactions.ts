import { addMs } from "@sandgate/kit/base/time";
import type { Transaction, Transactions } from "@sandgate/kit/storage/sqlite";
import { type Budget, grantOf, isWindowOver } from "../domain/rate-counters.ts";
import type { RateCounters } from "./rate-counters.ts";
import type { TransactionOf } from "./transaction.sqlite.ts";

interface Window {
  used: number;
  endsAt: Date;
}

function readWindow(tx: Transaction, { key, windowMs }: Budget, now: Date): Window {
  const known = tx.db.get<{ used: number; ends_at: number }>(
    "SELECT used, ends_at FROM request_windows WHERE key = ?",
    key,
  );
  const window = known && { used: known.used, endsAt: new Date(known.ends_at) };
  return window && !isWindowOver(window.endsAt, windowMs, now) ? window : { used: 0, endsAt: addMs(now, windowMs) };
}

function writeWindow(tx: Transaction, { key }: Budget, { used, endsAt }: Window): void {
  tx.db.run(
    `INSERT INTO request_windows (key, used, ends_at) VALUES (?, ?, ?)
     ON CONFLICT DO UPDATE SET used = excluded.used, ends_at = excluded.ends_at`,
    key,
    used,
    endsAt,
  );
}

const consume: TransactionOf<RateCounters["consume"]> = (tx, budget, wanted, now) => {
  const window = readWindow(tx, budget, now);
  const granted = grantOf(window.used, budget.limit, wanted);
  const used = window.used + granted;
  writeWindow(tx, budget, { ...window, used });
  return { granted, remaining: grantOf(used, budget.limit, budget.limit), endsAt: window.endsAt };
};

export const consumeEach: TransactionOf<RateCounters["consumeEach"]> = (tx, budgets, now) => {
  const windows = budgets.map((budget) => ({ budget, ...readWindow(tx, budget, now) }));
  for (const [index, { budget, used, endsAt }] of windows.entries()) {
    if (grantOf(used, budget.limit, 1) === 0) return { index, endsAt };
  }
  for (const { budget, used, endsAt } of windows) writeWindow(tx, budget, { used: used + 1, endsAt });
  return undefined;
};

const giveBackConsumed: TransactionOf<RateCounters["giveBack"]> = (tx, { key }, endsAt) => {
  tx.db.run("UPDATE request_windows SET used = max(used - 1, 0) WHERE key = ? AND ends_at = ?", key, endsAt);
};

export const rateCounterTransactions = { consume, consumeEach, giveBackConsumed } satisfies Transactions;

import { addMs } from "@sandgate/kit/base/time";
import type { Transaction, Transactions } from "@sandgate/kit/storage/sqlite";
import { type SlotRequest, slotLeaseMs, slotsFor } from "../domain/slot-leases.ts";
import type { SlotLeases } from "./slot-leases.ts";
import type { TransactionOf } from "./transaction.sqlite.ts";

function acquireSlotsOf(tx: Transaction, holder: string, request: SlotRequest, now: Date): number {
  const { key } = request;
  const others = tx.db.get<{ held: number | null }>(
    "SELECT sum(held) AS held FROM held_slots WHERE key = ? AND holder <> ? AND ends_at > ?",
    key,
    holder,
    now,
  );
  const slots = slotsFor(request, others?.held ?? 0);
  if (slots === 0) tx.db.run("DELETE FROM held_slots WHERE key = ? AND holder = ?", key, holder);
  else {
    tx.db.run(
      `INSERT INTO held_slots (key, holder, held, ends_at) VALUES (?, ?, ?, ?)
       ON CONFLICT DO UPDATE SET held = excluded.held, ends_at = excluded.ends_at`,
      key,
      holder,
      slots,
      addMs(now, slotLeaseMs),
    );
  }
  return slots;
}

const acquireSlots: TransactionOf<SlotLeases["acquire"]> = (tx, holder, requests, now) =>
  requests.map((request) => acquireSlotsOf(tx, holder, request, now));

export const slotLeaseTransactions = { acquireSlots } satisfies Transactions;

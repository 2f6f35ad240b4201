import type { ServiceImpl } from "@connectrpc/connect";
import type { IdentityService } from "@sandgate/proto/identity/v1/identity";
import { requestWindowMs } from "../domain/rate-counters.ts";
import { slotLeaseMs } from "../domain/slot-leases.ts";
import type { IdentityStore } from "../store/store.ts";

/** Answers what the facades count together: requests in a window, and slots of what is open at once. */
export function createLimitHandlers(o: { store: Pick<IdentityStore, "rateCounters" | "slotLeases">; now: () => Date }) {
  const { store, now } = o;
  return {
    async drawRequests({ key, limit, wanted, windowSeconds }) {
      const budget = { key, limit, windowMs: windowSeconds * 1000 || requestWindowMs };
      const { granted, remaining, endsAt } = await store.rateCounters.consume(budget, wanted, now());
      return { granted, remaining, resetMs: Math.max(0, endsAt.getTime() - now().getTime()) };
    },

    async holdSlots({ holder, requests }) {
      return { held: await store.slotLeases.acquire(holder, requests, now()), leaseMs: slotLeaseMs };
    },
  } satisfies Partial<ServiceImpl<typeof IdentityService>>;
}

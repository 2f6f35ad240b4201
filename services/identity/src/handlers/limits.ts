import type { ServiceImpl } from "@connectrpc/connect";
import type { IdentityService } from "@sandgate/proto/identity/v1/identity";
import { type IdentityStore, slotLeaseMs } from "../store/store.ts";

/** Answers what the facades count together: requests in a window, and slots of what is open at once. */
export function createLimitHandlers({ store, now }: { store: IdentityStore; now: () => Date }) {
  return {
    async drawRequests(request) {
      const { granted, remaining, endsAt } = await store.drawRequests(request, now());
      return { granted, remaining, resetMs: Math.max(0, endsAt.getTime() - now().getTime()) };
    },

    async holdSlots({ holder, holds }) {
      return { held: await store.holdSlots(holder, holds, now()), leaseMs: slotLeaseMs };
    },
  } satisfies Partial<ServiceImpl<typeof IdentityService>>;
}

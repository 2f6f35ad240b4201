import { networksOf } from "@sandgate/kit/base/networks";
import { dayMs, minuteMs } from "@sandgate/kit/base/time";
import { budget, hashKey, rateLimited } from "../domain/rate-counters.ts";
import type { IdentityStore } from "../store/store.ts";

/** How many attempts at an account are let through for networks that it has not signed in from, in those of one address. */
const elsewhereFactor = 2;
/** As many again for networks that haven't tried much at this account yet. */
const newcomersFactor = 3;
/** How often a network may try at an account in a day and still count as one that hasn't tried much. */
const newcomerTries = 5;

/**
 * Limits attempts to sign in so that guessing is slow and nobody is locked out by others. An account's own networks, those
 * that it has signed in from in the last 90 days, count only what they do themselves. All other networks share what the
 * account lets through, of which a part is for those that haven't tried much at it: the few that an attack comes from leave
 * it, even if they are hundreds.
 */
export interface SignInAttempts {
  /**
   * Counts an attempt, before its password is looked at, and returns whether it comes from one of the account's own networks.
   * Throws RATE_LIMITED. It counts for a name that nobody has too, so that the answer doesn't tell.
   */
  admit(attempt: {
    usernameKey: string;
    userId: string | undefined;
    address: string;
  }): Promise<{ fromOwnNetwork: boolean }>;
  /** Remembers where the user signed in. */
  remember(userId: string, address: string): Promise<void>;
}

/** @param o.perMinute attempts a minute at one account from one address; 0: no limits */
export function createSignInAttempts(o: {
  store: Pick<IdentityStore, "rateCounters" | "knownNetworks">;
  perMinute: number;
  now: () => Date;
}): SignInAttempts {
  const { store, perMinute, now } = o;

  return {
    async admit({ usernameKey: name, userId, address }) {
      const at = now();
      const networks = networksOf(address);
      const [{ name: network }] = networks;
      const widest = networks.at(-1)?.name;
      const fromOwnNetwork = await store.knownNetworks.has(userId ?? "", networkKey(userId ?? "", network), at);
      if (perMinute === 0) return { fromOwnNetwork };
      const own = budget(`sign-in to ${name} from ${network}`, perMinute, minuteMs);
      const elsewhere = budget(`sign-in to ${name} from elsewhere`, perMinute * elsewhereFactor, minuteMs);
      const overspent = await store.rateCounters.consumeEach(fromOwnNetwork ? [own] : [own, elsewhere], at);
      if (!overspent) return { fromOwnNetwork };
      if (overspent.index === 1) {
        const asNewcomer = [
          own,
          budget(`first sign-ins to ${name} from ${widest}`, newcomerTries, dayMs),
          budget(`first sign-ins to ${name}`, perMinute * newcomersFactor, minuteMs),
        ];
        if (!(await store.rateCounters.consumeEach(asNewcomer, at))) return { fromOwnNetwork };
      }
      throw rateLimited("Too many attempts for this account.", overspent, at);
    },

    async remember(userId, address) {
      await store.knownNetworks.add(userId, networkKey(userId, networksOf(address)[0].name), now());
    },
  };
}

function networkKey(userId: string, network: string): Uint8Array {
  return hashKey(`${userId} ${network}`);
}

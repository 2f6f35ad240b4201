import { networksOf } from "@sandgate/kit/base/networks";
import { dayMs, minuteMs } from "@sandgate/kit/base/time";
import { budget, hashKey, rateLimited } from "../domain/rate-counters.ts";
import type { IdentityStore } from "../store/store.ts";

/** Networks that the account has not signed in from share this many times the attempts of one address. */
const elsewhereFactor = 2;
/** Networks that have tried little at this account yet share this many times the attempts of one address besides. */
const newcomersFactor = 3;
/** How often a network may try at an account in a day and still count as one that has tried little. */
const newcomerTries = 5;

/**
 * Limits sign-in attempts so that guessing is slow and nobody is locked out by others. An account's own networks are
 * those that it has signed in from in the last 90 days; each counts only its own attempts. All other networks share a
 * limit, and those that have tried little share another. An attack from hundreds of networks soon loses the second,
 * which leaves it to the user in a new place.
 */
export interface SignInAttempts {
  /**
   * Counts an attempt before its password is checked, and returns whether it comes from one of the account's own
   * networks. Attempts at a name that nobody has are counted too, so that the answer doesn't reveal it. Throws
   * RATE_LIMITED.
   */
  admit(attempt: {
    usernameKey: string;
    userId: string | undefined;
    address: string;
  }): Promise<{ fromOwnNetwork: boolean }>;
  /** Whether the user has signed in from the address's network lately. */
  isOwnNetwork(userId: string, address: string): Promise<boolean>;
  /** Remembers where the user signed in. */
  remember(userId: string, address: string): Promise<void>;
}

/** @param o.perMinute attempts a minute at one account from one address; 0 for no limits */
export function createSignInAttempts(o: {
  store: Pick<IdentityStore, "rateCounters" | "knownNetworks">;
  perMinute: number;
  now: () => Date;
}): SignInAttempts {
  const { store, perMinute, now } = o;

  function isOwnNetwork(userId: string, address: string): Promise<boolean> {
    return store.knownNetworks.has(userId, networkKey(userId, networksOf(address)[0].name), now());
  }

  return {
    isOwnNetwork,

    async admit({ usernameKey, userId, address }) {
      const at = now();
      // A name may be any text, also one that reads like the end of another budget's.
      const name = Buffer.from(hashKey(usernameKey)).toString("hex");
      const networks = networksOf(address);
      const [{ name: network }] = networks;
      const widest = networks.at(-1)?.name;
      const fromOwnNetwork = await isOwnNetwork(userId ?? "", address);
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

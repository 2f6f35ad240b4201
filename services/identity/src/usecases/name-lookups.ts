import { hourMs } from "@sandgate/kit/base/time";
import { budget, rateLimited } from "../domain/rate-counters.ts";
import type { User } from "../domain/users.ts";
import type { IdentityStore } from "../store/store.ts";

/** How many names that no verified user has a user may look up in an hour. */
const missesPerHour = 20;

/**
 * Finds users by their names for somebody who wants to add one of them somewhere. Names that nobody has are few, so
 * that nobody learns from many who is registered. Throws RATE_LIMITED, for every name then.
 */
export type LookUpNames = (usernames: readonly string[], askedBy: string) => Promise<User[]>;

export function createNameLookups(o: {
  store: Pick<IdentityStore, "rateCounters">;
  find(usernames: readonly string[]): Promise<User[]>;
  now: () => Date;
}): LookUpNames {
  const { rateCounters } = o.store;

  return async (usernames, askedBy) => {
    const misses = budget(`names that nobody has, asked for by ${askedBy}`, missesPerHour, hourMs);
    const at = o.now();
    // Counted before it is known, so that those that are asked for at once count too.
    const { granted, endsAt } = await rateCounters.consume(misses, 1, at);
    if (granted === 0) throw rateLimited("You named too many users who don't exist.", { index: 0, endsAt }, at);
    const users = await o.find(usernames);
    if (users.some(({ verified }) => verified)) await rateCounters.giveBack(misses, endsAt);
    return users;
  };
}

import type { ServiceStore } from "@sandgate/kit/storage/open-store";
import type { SealedColumn } from "@sandgate/kit/storage/sealed-values";
import type { ApiTokens } from "./api-tokens.ts";
import type { Keys } from "./keys.ts";
import type { KnownNetworks } from "./known-networks.ts";
import type { Mails } from "./mails.ts";
import type { Passwords } from "./passwords.ts";
import type { RateCounters } from "./rate-counters.ts";
import type { Registrations } from "./registrations.ts";
import type { OtpAttempts, SecondFactors } from "./second-factors.ts";
import type { RefreshTokens, Sessions } from "./sessions.ts";
import type { SingleSignOn } from "./single-sign-on.ts";
import type { SlotLeases } from "./slot-leases.ts";
import type { Users } from "./users.ts";

/** Removes what nobody needs any more (`keptMs`). */
export interface Expiry {
  /**
   * Deletes up to `limit` rows of each kind that have been kept long enough, and returns how many; none where the
   * database does that.
   */
  sweep(now: Date, limit: number): Promise<number>;
}

/** The same in both databases. */
export const sealedColumns: readonly SealedColumn[] = [
  { table: "keys", column: "sealed" },
  { table: "mails", column: "sealed" },
  { table: "second_factors", column: "sealed" },
];

/**
 * What identity keeps. Every method that changes something is one transaction, which stores its events too, unless
 * nothing happens. Secrets come hashed or sealed.
 */
export interface IdentityStore extends ServiceStore {
  readonly users: Users;
  readonly registrations: Registrations;
  readonly passwords: Passwords;
  readonly sessions: Sessions;
  readonly refreshTokens: RefreshTokens;
  readonly apiTokens: ApiTokens;
  readonly keys: Keys;
  readonly mails: Mails;
  readonly secondFactors: SecondFactors;
  readonly otpAttempts: OtpAttempts;
  readonly singleSignOn: SingleSignOn;
  readonly knownNetworks: KnownNetworks;
  readonly rateCounters: RateCounters;
  readonly slotLeases: SlotLeases;
  readonly expiry: Expiry;
}

import type { Budget, Overspent } from "../domain/rate-counters.ts";

/** Counts behind the limits on sign-ins and mails, the same for all replicas. */
export interface LimitStore {
  /** Takes one of each budget, or none when one of them has nothing left; the first of those is the answer. No key twice. */
  spend(budgets: readonly Budget[], now: Date): Promise<Overspent | undefined>;
  /** Whether the user signed in from the network lately (`keptMs.knownNetworks`). A network comes hashed with its user. */
  isKnownNetwork(userId: string, network: Uint8Array, now: Date): Promise<boolean>;
  /** Remembers that the user signed in from the network, until the password changes. */
  noteNetwork(userId: string, network: Uint8Array, now: Date): Promise<void>;
}

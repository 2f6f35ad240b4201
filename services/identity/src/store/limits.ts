/** How often something may happen in a window, which begins with the first time. */
export interface Budget {
  /** A SHA-256 hash of what is limited. */
  key: Uint8Array;
  limit: number;
  windowMs: number;
}

/** Which budget had nothing left, and when its window ends. */
export interface Overspent {
  index: number;
  endsAt: Date;
}

/** Counts behind the limits on sign-ins and mails, the same for all replicas. */
export interface LimitStore {
  /** Takes one of each budget, or none when one of them has nothing left; the first of those is the answer. No key twice. */
  spend(budgets: readonly Budget[], now: Date): Promise<Overspent | undefined>;
  /** Whether the user signed in from the network lately (`keptMs.knownNetworks`). A network comes hashed with its user. */
  isKnownNetwork(userId: string, network: Uint8Array, now: Date): Promise<boolean>;
  /** Remembers that the user signed in from the network, until the password changes. */
  noteNetwork(userId: string, network: Uint8Array, now: Date): Promise<void>;
}

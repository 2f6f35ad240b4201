/** Where users signed in from. A network comes hashed with its user. */
export interface KnownNetworks {
  /** Whether the user signed in from the network lately (`keptMs.knownNetworks`). */
  has(userId: string, network: Uint8Array, now: Date): Promise<boolean>;
  /** Remembers that the user signed in from the network, until the password changes. */
  add(userId: string, network: Uint8Array, now: Date): Promise<void>;
}

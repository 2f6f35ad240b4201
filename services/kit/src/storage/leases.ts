/** Leases divide work among replicas by the database's clock. They don't make it correct: compare-and-set does. */
export interface LeaseStore {
  /** Takes or renews each of these names that is free, expired or the holder's own, and answers those the holder has now. */
  acquire(names: readonly string[], holder: string, ttlMs: number): Promise<string[]>;
  /** Those of these names that nobody holds. */
  listFree(names: readonly string[]): Promise<string[]>;
  /** Frees what the holder has of these; another's stays. */
  release(names: readonly string[], holder: string): Promise<void>;
}

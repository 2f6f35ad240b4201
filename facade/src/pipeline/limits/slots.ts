/** What is limited, and to how many that are open at once. */
export interface SlotLimit {
  key: string;
  limit: number;
}

/** Counts what is open at once. */
export interface Slots {
  /** Acquires a slot of each limit, or none of any: the limit that has none left is returned. */
  acquire(limits: readonly SlotLimit[]): SlotLimit | undefined | Promise<SlotLimit | undefined>;
  /** Gives back what `acquire` acquired. */
  release(limits: readonly SlotLimit[]): void;
  /** Gives back everything. Nothing is called afterwards. */
  close(): Promise<void>;
}

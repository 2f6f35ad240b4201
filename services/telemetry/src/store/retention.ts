/** Removes what is too old or too much. */
export interface Retention {
  /** Removes some of what is older than `before`. True when there may be more. */
  sweepExpired(before: Date): Promise<boolean>;
  /**
   * Removes the oldest lines of the workspace that has most, as for its own quota, while all workspaces have more than
   * `totalBytes`. Returns how many lines, and whether there may be more to remove.
   */
  trimTotal(totalBytes: number): Promise<{ lines: number; more: boolean }>;
}

/** Removes what is too old or too much. */
export interface Retention {
  /** Removes some of what is older than `before`. True when there may be more. */
  sweepExpired(before: Date): Promise<boolean>;
  /**
   * When the lines of all workspaces come to more than `totalBytes`, removes some of the workspace that has most: its oldest, as
   * for its own quota. Returns how many lines, and whether there may be more to remove.
   */
  trimTotal(totalBytes: number): Promise<{ lines: number; more: boolean }>;
}

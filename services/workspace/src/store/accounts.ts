/** What the service keeps about users' accounts, even of users who are in no workspace. */
export interface Accounts {
  /** Whether the personal workspace has ever been created; it may have been deleted since. */
  hadPersonalWorkspace(userId: string): Promise<boolean>;
  /** From now on the user can neither create nor join a workspace. */
  markDeleted(userId: string, at: Date): Promise<void>;
  /** Forgets up to `limit` users whose accounts were deleted before this time, and returns how many. */
  forgetDeletedBefore(before: Date, limit: number): Promise<number>;
}

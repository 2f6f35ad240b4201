/** What the service remembers of users' accounts, also when they are in no workspace. */
export interface Accounts {
  /** Whether the personal workspace has ever been created; it may have been deleted since. */
  hadPersonalWorkspace(userId: string): Promise<boolean>;
  /** From now on the user can neither create nor join a workspace. */
  markDeleted(userId: string, at: Date): Promise<void>;
}

import { isReached, type Quotas } from "./quotas.ts";

/** A user's account, as a transaction finds it that makes the user the owner or a member of a workspace. */
export interface AccountState {
  /** The user can neither create nor join a workspace any more. */
  readonly deleted: boolean;
  /** Whether their personal workspace has ever been created; it may have been deleted since. */
  readonly hadPersonalWorkspace: boolean;
  /** Workspaces that count towards the user's quota. Nothing is counted beyond the quota, and without one. */
  readonly owned: number;
}

/** The user's account has been deleted. */
export type AccountDeleted = "account_deleted";
/** As many workspaces count towards the user's quota as it allows. */
export type OwnsTooMany = "owns_too_many";

export function decideCreateWorkspace(owner: AccountState, quotas: Quotas): "done" | AccountDeleted | OwnsTooMany {
  return owner.deleted ? "account_deleted" : decideTakeOver(owner, quotas);
}

/** A personal workspace is created once, and whatever the quota: a list must not fail because of it. */
export function mayCreatePersonalWorkspace({ deleted, hadPersonalWorkspace }: AccountState): boolean {
  return !deleted && !hadPersonalWorkspace;
}

export function decideTakeOver({ owned }: AccountState, { maxOwned }: Quotas): "done" | OwnsTooMany {
  return isReached(maxOwned, owned) ? "owns_too_many" : "done";
}

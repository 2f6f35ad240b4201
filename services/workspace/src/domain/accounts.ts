import { isReached, type Quotas } from "./quotas.ts";

/** What a transaction reads of a user's account before it makes the user a member or an owner. */
export interface AccountState {
  /** The user can neither create nor join a workspace any more. */
  readonly deleted: boolean;
  /** Whether their personal workspace has ever been created; it may have been deleted since. */
  readonly hadPersonalWorkspace: boolean;
  /** Workspaces that count towards the user's quota. Counting stops at the quota; without one this is 0. */
  readonly owned: number;
}

/** The user's account has been deleted. */
export type AccountDeleted = "account_deleted";
/** As many workspaces count towards the user's quota as it allows. */
export type OwnsTooMany = "owns_too_many";

export function decideCreateWorkspace(owner: AccountState, quotas: Quotas): "done" | AccountDeleted | OwnsTooMany {
  return owner.deleted ? "account_deleted" : decideTakeOver(owner, quotas);
}

/** A personal workspace is created once, whatever the quota: listing workspaces must not fail. */
export function mayCreatePersonalWorkspace({ deleted, hadPersonalWorkspace }: AccountState): boolean {
  return !deleted && !hadPersonalWorkspace;
}

export function decideTakeOver({ owned }: AccountState, { maxOwned }: Quotas): "done" | OwnsTooMany {
  return isReached(maxOwned, owned) ? "owns_too_many" : "done";
}

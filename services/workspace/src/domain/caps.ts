import { DomainError } from "@sandgate/kit/base/domain-error";

/** What a user and a workspace may have at most; 0 means no limit. */
export interface Caps {
  /** Workspaces that a user owns, the personal one among them. */
  maxOwned: number;
  maxMembers: number;
}

/** A user who would own one workspace more than they may. */
export function ownsTooMany({ maxOwned }: Caps): DomainError {
  return new DomainError("CONFLICT", "You own as many workspaces as a user may own.", {
    hint: `A user may own ${maxOwned} workspaces. Delete one, leave one that has another owner, or ask the operator for more.`,
  });
}

/** A user whom somebody else would make the owner of one workspace more than they may own. */
export function memberOwnsTooMany({ maxOwned }: Caps): DomainError {
  return new DomainError("CONFLICT", "This user owns as many workspaces as a user may own.", {
    hint: `A user may own ${maxOwned} workspaces. Give them another role, or have them give up one they own.`,
  });
}

export function tooManyMembers({ maxMembers }: Caps): DomainError {
  return new DomainError("CONFLICT", "The workspace has as many members as it may have.", {
    hint: `A workspace may have ${maxMembers} members. Remove one, or ask the operator for more.`,
  });
}

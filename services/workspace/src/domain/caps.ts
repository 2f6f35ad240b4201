import { DomainError } from "@sandgate/kit/base/domain-error";

/** What a user and a workspace may have at most; 0 means no limit. */
export interface Caps {
  /** Workspaces that are charged to a user, the personal one among them. */
  maxOwned: number;
  maxMembers: number;
}

/** A user who would create or take over one workspace more than they may own. */
export function ownsTooMany({ maxOwned }: Caps): DomainError {
  return new DomainError("CONFLICT", "You own as many workspaces as a user may own.", {
    hint: `A user may own ${maxOwned} workspaces: those they created or took over. Delete one, have another owner take one over, or ask the operator for more.`,
  });
}

export function tooManyMembers({ maxMembers }: Caps): DomainError {
  return new DomainError("CONFLICT", "The workspace has as many members as it may have.", {
    hint: `A workspace may have ${maxMembers} members. Remove one, or ask the operator for more.`,
  });
}

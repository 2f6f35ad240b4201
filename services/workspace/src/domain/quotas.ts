import { DomainError } from "@sandgate/kit/base/domain-error";

/** What a user and a workspace may have at most; 0 means no limit. */
export interface Quotas {
  /** Workspaces that count towards a user's quota, the personal one among them. */
  readonly maxOwned: number;
  readonly maxMembers: number;
}

/** @param max 0 for no limit */
export function isReached(max: number, count: number): boolean {
  return max > 0 && count >= max;
}

/** A user would create or take over one workspace more than they may own. */
export function tooManyWorkspaces({ maxOwned }: Quotas): DomainError {
  return new DomainError("CONFLICT", "You own as many workspaces as a user may own.", {
    hint: `A user may own ${maxOwned} workspaces: those they created or took over. Delete one, have another owner take one over, or ask the operator for more.`,
  });
}

export function tooManyMembers({ maxMembers }: Quotas): DomainError {
  return new DomainError("CONFLICT", "The workspace has as many members as it may have.", {
    hint: `A workspace may have ${maxMembers} members. Remove one, or ask the operator for more.`,
  });
}

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

/** The caller would own one workspace more than the quota allows. */
export function tooManyWorkspaces({ maxOwned }: Quotas): DomainError {
  return new DomainError("CONFLICT", `You have reached the limit of ${maxOwned} workspaces.`, {
    hint: `A user may own ${maxOwned} workspaces, counting those they created or took over. Delete one, have another owner take one over, or ask the operator for a higher limit.`,
  });
}

export function tooManyMembers({ maxMembers }: Quotas): DomainError {
  return new DomainError("CONFLICT", `The workspace has reached the limit of ${maxMembers} members.`, {
    hint: `A workspace may have ${maxMembers} members. Remove one, or ask the operator for a higher limit.`,
  });
}

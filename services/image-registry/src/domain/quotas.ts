import { DomainError } from "@sandgate/kit/base/domain-error";

/** What a workspace may have at most; 0 means no limit. */
export interface Quotas {
  readonly maxImages: number;
  readonly maxRegistries: number;
}

/** What a transaction reads of a workspace before it creates something there. */
export interface WorkspaceState {
  /** Nothing can be created there any more. */
  readonly deleted: boolean;
  /** How many of the kind it has. Counting stops at the quota; without one this is 0. */
  readonly count: number;
}

/** Whether one more of a kind may be created in the workspace. */
export function decideCreate(
  { deleted, count }: WorkspaceState,
  max: number,
): "done" | "workspace_deleted" | "too_many" {
  if (deleted) return "workspace_deleted";
  return max > 0 && count >= max ? "too_many" : "done";
}

export function workspaceDeleted(): DomainError {
  return new DomainError("WORKSPACE_FORBIDDEN", "The workspace has been deleted.");
}

export function tooManyImages({ maxImages }: Quotas): DomainError {
  return new DomainError("CONFLICT", `The workspace has reached the limit of ${maxImages} images.`, {
    hint: `A workspace may have ${maxImages} images of its own. Delete one, or ask the operator for a higher limit.`,
  });
}

export function tooManyRegistries({ maxRegistries }: Quotas): DomainError {
  return new DomainError("CONFLICT", `The workspace has reached the limit of ${maxRegistries} registry credentials.`, {
    hint: `A workspace may have ${maxRegistries} registry credentials. Delete one, or ask the operator for a higher limit.`,
  });
}

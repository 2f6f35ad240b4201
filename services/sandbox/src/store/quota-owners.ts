import type { QuotaOwner } from "../domain/quota.ts";

/** The quota owner of each workspace, as the workspace service decided. */
export interface QuotaOwners {
  /** Counts a workspace with all its sandboxes towards a user's quota, unless a later quota owner is stored. */
  assign(workspaceId: string, owner: QuotaOwner): Promise<void>;
}

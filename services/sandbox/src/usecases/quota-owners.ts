import type { Client } from "@connectrpc/connect";
import { DomainError, hasReason } from "@sandgate/kit/base/domain-error";
import { type Call, onBehalfOf, workspaceOf } from "@sandgate/kit/rpc/context";
import type { WorkspaceService } from "@sandgate/proto/workspace/v1/workspace";
import type { QuotaOwner } from "../domain/quota.ts";

type Workspaces = Client<typeof WorkspaceService>;

/**
 * The quota owner of the call's workspace, as the workspace service knows it. If they have left, the calling owner
 * takes the workspace over. Undefined for a workspace that has been deleted. Throws PROVISIONING_FAILED when nobody can
 * take it over.
 */
export async function findQuotaOwner(workspaces: Workspaces, call: Call): Promise<QuotaOwner | undefined> {
  const found = await read(workspaces, call);
  if (!found?.hasLeft) return found?.owner;
  await takeOver(workspaces, call);
  return (await read(workspaces, call))?.owner;
}

async function read(workspaces: Workspaces, call: Call): Promise<{ owner: QuotaOwner; hasLeft: boolean } | undefined> {
  const { quotaOwners } = await workspaces.batchGetWorkspaces({ workspaceIds: [workspaceOf(call)] }, onBehalfOf(call));
  const [found] = quotaOwners;
  return found && { owner: { userId: found.userId, since: Number(found.since) }, hasLeft: found.abandoned };
}

async function takeOver(workspaces: Workspaces, call: Call): Promise<void> {
  try {
    await workspaces.takeOverWorkspace({}, onBehalfOf(call));
  } catch (error) {
    if (!hasReason(error, "INSUFFICIENT_ROLE") && !hasReason(error, "CONFLICT")) throw error;
    throw new DomainError("PROVISIONING_FAILED", "The quota owner of this workspace has left it.", {
      hint: error.reason === "CONFLICT" ? error.hint : takeOverHint,
      cause: error,
    });
  }
}

const takeOverHint =
  "An owner of the workspace takes it over by provisioning a sandbox, or by confirming their own role with PUT /workspaces/{workspace_id}/members/{user_id}.";

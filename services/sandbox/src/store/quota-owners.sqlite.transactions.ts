import type { Transaction, Transactions } from "@sandgate/kit/storage/sqlite";
import { type CreateState, isUsageNeeded, type QuotaOwner, type Quotas, type Usage } from "../domain/quota.ts";
import type { Sandbox } from "../domain/sandbox.ts";

export function assignQuotaOwner({ db }: Transaction, workspaceId: string, { userId, since }: QuotaOwner): void {
  db.run(
    `INSERT INTO guards (workspace_id, charged_to, charged_since) VALUES (?, ?, ?)
     ON CONFLICT DO UPDATE SET charged_to = excluded.charged_to, charged_since = excluded.charged_since
     WHERE excluded.charged_since > charged_since`,
    workspaceId,
    userId,
    since,
  );
}

/** Adds a new sandbox to what its workspace uses, and reads what its creation is decided by. */
export function reserveUsage(
  { db }: Transaction,
  { workspaceId, image }: Sandbox,
  quotas: Quotas,
): Omit<CreateState, "isNameTaken"> {
  const workspace = db.get<Usage & { owner: string | null; deletedAt: number | null }>(
    `INSERT INTO guards (workspace_id, live_count, live_memory_mb) VALUES (?, 1, ?)
     ON CONFLICT DO UPDATE SET live_count = live_count + 1, live_memory_mb = live_memory_mb + excluded.live_memory_mb
     RETURNING live_count AS sandboxes, live_memory_mb AS memoryMb, charged_to AS owner, deleted_at AS deletedAt`,
    workspaceId,
    image.memoryMb,
  );
  if (!workspace) throw new Error(`The guard of workspace ${workspaceId} was not written.`);
  const { owner, deletedAt } = workspace;
  const sum = "SELECT sum(live_count) AS sandboxes, sum(live_memory_mb) AS memoryMb FROM guards WHERE live_count > 0";
  return {
    isWorkspaceDeleted: deletedAt !== null,
    workspace,
    user:
      owner && isUsageNeeded("user", quotas, workspace) ? db.get<Usage>(`${sum} AND charged_to = ?`, owner) : undefined,
    installation: isUsageNeeded("installation", quotas, workspace) ? db.get<Usage>(sum) : undefined,
  };
}

/** Subtracts a sandbox that has ended from what its workspace uses. */
export function releaseUsage({ db }: Transaction, { workspaceId, image }: Sandbox): void {
  db.run(
    "UPDATE guards SET live_count = live_count - 1, live_memory_mb = live_memory_mb - ? WHERE workspace_id = ?",
    image.memoryMb,
    workspaceId,
  );
}

export const quotaOwnerTransactions = { assignQuotaOwner } satisfies Transactions;

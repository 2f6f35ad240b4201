import type { Transaction, Transactions } from "@sandgate/kit/storage/sqlite";
import {
  type CreateState,
  countFailure,
  type FailureWindow,
  isUsageNeeded,
  type QuotaOwner,
  type Quotas,
  type Usage,
} from "../domain/quota.ts";
import { isFailedAttempt, type Sandbox } from "../domain/sandbox.ts";

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

interface GuardRow {
  failures: number;
  failures_until: number;
}

function failuresOf({ failures, failures_until }: GuardRow): FailureWindow {
  return { failures, endsAt: new Date(failures_until) };
}

/** Adds a new sandbox to what its workspace uses, and reads what its creation is decided by. */
export function reserveUsage(
  { db }: Transaction,
  { workspaceId, image, recordBytes = 0 }: Sandbox,
  quotas: Quotas,
): Omit<CreateState, "isNameTaken"> {
  const guard = db.get<GuardRow & Usage & { recordBytes: number; owner: string | null; deletedAt: number | null }>(
    `INSERT INTO guards (workspace_id, live_count, live_memory_mb, record_bytes) VALUES (?, 1, ?, ?)
     ON CONFLICT DO UPDATE SET live_count = live_count + 1, live_memory_mb = live_memory_mb + excluded.live_memory_mb,
       record_bytes = record_bytes + excluded.record_bytes
     RETURNING live_count AS sandboxes, live_memory_mb AS memoryMb, record_bytes AS recordBytes, failures,
       failures_until, charged_to AS owner, deleted_at AS deletedAt`,
    workspaceId,
    image.memoryMb,
    recordBytes,
  );
  if (!guard) throw new Error(`The guard of workspace ${workspaceId} was not written.`);
  const { sandboxes, memoryMb, owner, deletedAt } = guard;
  const workspace = { sandboxes, memoryMb };
  const sum = "SELECT sum(live_count) AS sandboxes, sum(live_memory_mb) AS memoryMb FROM guards WHERE live_count > 0";
  return {
    isWorkspaceDeleted: deletedAt !== null,
    workspace,
    recordBytes: guard.recordBytes,
    failures: failuresOf(guard),
    user:
      owner && isUsageNeeded("user", quotas, workspace) ? db.get<Usage>(`${sum} AND charged_to = ?`, owner) : undefined,
    installation: isUsageNeeded("installation", quotas, workspace) ? db.get<Usage>(sum) : undefined,
  };
}

/** Subtracts a sandbox that has ended from what its workspace uses, and counts an attempt that has failed. */
export function releaseUsage({ db }: Transaction, sandbox: Sandbox): void {
  const { workspaceId, image, updatedAt } = sandbox;
  db.run(
    "UPDATE guards SET live_count = live_count - 1, live_memory_mb = live_memory_mb - ? WHERE workspace_id = ?",
    image.memoryMb,
    workspaceId,
  );
  if (!isFailedAttempt(sandbox)) return;
  const guard = db.get<GuardRow>("SELECT failures, failures_until FROM guards WHERE workspace_id = ?", workspaceId);
  const { failures, endsAt } = countFailure(guard && failuresOf(guard), updatedAt);
  db.run("UPDATE guards SET failures = ?, failures_until = ? WHERE workspace_id = ?", failures, endsAt, workspaceId);
}

/** Subtracts deleted records from what their workspaces use. */
export function releaseRecords({ db }: Transaction, deleted: readonly Sandbox[]): void {
  for (const { workspaceId, recordBytes = 0 } of deleted) {
    db.run("UPDATE guards SET record_bytes = record_bytes - ? WHERE workspace_id = ?", recordBytes, workspaceId);
  }
}

export const quotaOwnerTransactions = { assignQuotaOwner } satisfies Transactions;

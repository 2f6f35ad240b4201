import type { Transaction, Transactions } from "@sandgate/kit/storage/sqlite";
import { checkCreate } from "../domain/quota.ts";
import { hasEnded, type Sandbox } from "../domain/sandbox.ts";
import { assignQuotaOwner, releaseUsage, reserveUsage } from "./quota-owners.sqlite.transactions.ts";
import { encodeRecord } from "./sandbox-rows.sqlite.ts";
import type { CreateOptions } from "./sandboxes.ts";

function isNameTaken({ db }: Transaction, { workspaceId, name }: Sandbox): boolean {
  const live = "SELECT 1 FROM sandboxes WHERE workspace_id = ? AND name = ? AND state IN ('provisioning', 'ready')";
  return db.get(live, workspaceId, name) !== undefined;
}

function insert({ db }: Transaction, sandbox: Sandbox): void {
  const { id, version, workspaceId, name, state, createdAt } = sandbox;
  db.run(
    "INSERT INTO sandboxes (id, version, workspace_id, name, state, created_at, record) VALUES (?, ?, ?, ?, ?, ?, ?)",
    id,
    version,
    workspaceId,
    name,
    state,
    createdAt,
    encodeRecord(sandbox),
  );
  for (const [label, value] of Object.entries(sandbox.labels)) {
    db.run(
      "INSERT INTO labels (sandbox_id, name, value, workspace_id, state, created_at) VALUES (?, ?, ?, ?, ?, ?)",
      id,
      label,
      value,
      workspaceId,
      state,
      createdAt,
    );
  }
}

export const sandboxTransactions = {
  createSandbox(tx: Transaction, sandbox: Sandbox, { quotaOwner, quotas, events, record }: CreateOptions): void {
    tx.keepIdempotencyRecord(record);
    if (quotaOwner) assignQuotaOwner(tx, sandbox.workspaceId, quotaOwner);
    const usages = reserveUsage(tx, sandbox, quotas);
    checkCreate(sandbox, quotas, { ...usages, isNameTaken: isNameTaken(tx, sandbox) });
    insert(tx, sandbox);
    tx.publish(events);
  },

  updateSandbox(tx: Transaction, sandbox: Sandbox, events: CreateOptions["events"]): boolean {
    const { id, version, state } = sandbox;
    const before = tx.db.get<Pick<Sandbox, "state">>(
      "SELECT state FROM sandboxes WHERE id = ? AND version = ?",
      id,
      version - 1,
    );
    if (!before) return false;
    tx.db.run(
      "UPDATE sandboxes SET version = ?, state = ?, stopped_at = ?, record = ? WHERE id = ?",
      version,
      state,
      sandbox.stoppedAt ?? null,
      encodeRecord(sandbox),
      id,
    );
    if (state !== before.state) tx.db.run("UPDATE labels SET state = ? WHERE sandbox_id = ?", state, id);
    if (hasEnded(state) && !hasEnded(before.state)) releaseUsage(tx, sandbox);
    tx.publish(events);
    return true;
  },

  markCleaned({ db }: Transaction, id: string, at: Date): void {
    db.run(
      "UPDATE sandboxes SET cleaned_at = ? WHERE id = ? AND cleaned_at IS NULL AND state IN ('stopped', 'failed')",
      at,
      id,
    );
  },

  deleteCleaned({ db }: Transaction, workspaceId: string, limit: number): number {
    return db.run(
      `DELETE FROM sandboxes WHERE id IN
         (SELECT id FROM sandboxes WHERE workspace_id = ? AND cleaned_at IS NOT NULL LIMIT ?)`,
      workspaceId,
      limit,
    );
  },

  deleteEndedBefore({ db }: Transaction, before: Date, limit: number): number {
    return db.run(
      `DELETE FROM sandboxes WHERE id IN
         (SELECT id FROM sandboxes WHERE cleaned_at IS NOT NULL AND stopped_at < ? LIMIT ?)`,
      before,
      limit,
    );
  },
} satisfies Transactions;

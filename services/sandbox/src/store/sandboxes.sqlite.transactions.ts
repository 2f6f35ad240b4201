import type { Transaction, Transactions } from "@sandgate/kit/storage/sqlite";
import { type CreateState, checkCreate, chooseEvicted, needsEviction, type Quotas } from "../domain/quota.ts";
import { hasEnded, type PullProgress, type Sandbox, type SandboxState } from "../domain/sandbox.ts";
import { labelKeysOf } from "./label-keys.sqlite.ts";
import { deletePreviewsOf } from "./previews.sqlite.transactions.ts";
import { assignQuotaOwner, releaseRecords, releaseUsage, reserveUsage } from "./quota-owners.sqlite.transactions.ts";
import { decodeRow, encodeRecord, type Row, rowColumns } from "./sandbox-rows.sqlite.ts";
import type { CreateOptions, SandboxUsed } from "./sandboxes.ts";

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
  for (const label of labelKeysOf(sandbox)) {
    db.run(
      "INSERT INTO label_keys (label, state, created_at, sandbox_id) VALUES (?, ?, ?, ?)",
      label,
      state,
      createdAt,
      id,
    );
  }
}

function changeLabelKeys({ db }: Transaction, sandbox: Sandbox, from: SandboxState): void {
  for (const label of labelKeysOf(sandbox)) {
    db.run(
      "UPDATE label_keys SET state = ? WHERE label = ? AND state = ? AND created_at = ? AND sandbox_id = ?",
      sandbox.state,
      label,
      from,
      sandbox.createdAt,
      sandbox.id,
    );
  }
}

function findRecords({ db }: Transaction, which: string, ...parameters: (string | number | Date)[]): Sandbox[] {
  return db.all<Row>(`SELECT ${rowColumns} FROM sandboxes WHERE ${which}`, ...parameters).map(decodeRow);
}

function deleteEnv({ db }: Transaction, sandboxId: string): void {
  db.run("DELETE FROM envs WHERE id = ?", sandboxId);
}

/** Returns how many. */
function deleteRecords(tx: Transaction, records: readonly Sandbox[]): number {
  for (const sandbox of records) {
    const { id, state, createdAt } = sandbox;
    for (const label of labelKeysOf(sandbox)) {
      tx.db.run(
        "DELETE FROM label_keys WHERE label = ? AND state = ? AND created_at = ? AND sandbox_id = ?",
        label,
        state,
        createdAt,
        id,
      );
    }
    tx.db.run("DELETE FROM sandboxes WHERE id = ?", id);
    // Of one that an earlier version has ended.
    deleteEnv(tx, id);
    deletePreviewsOf(tx, id);
  }
  releaseRecords(tx, records);
  return records.length;
}

/** Those that were cleaned first come first. Records may be large, and mostly one is needed. */
function* readCleaned(tx: Transaction, workspaceId: string): Generator<Sandbox> {
  const cleaned = "workspace_id = ? AND cleaned_at IS NOT NULL ORDER BY cleaned_at LIMIT 2 OFFSET ?";
  for (let read = 0; ; read += 2) {
    const records = findRecords(tx, cleaned, workspaceId, read);
    yield* records;
    if (records.length < 2) return;
  }
}

function evictRecords(tx: Transaction, { workspaceId }: Sandbox, quotas: Quotas, state: CreateState): void {
  if (!needsEviction(quotas, state)) return;
  deleteRecords(tx, chooseEvicted(quotas, state, readCleaned(tx, workspaceId)));
}

export const sandboxTransactions = {
  createSandbox(tx: Transaction, sandbox: Sandbox, o: CreateOptions): void {
    const { quotaOwner, quotas, events, record, sealedEnv } = o;
    tx.keepIdempotencyRecord(record);
    if (quotaOwner) assignQuotaOwner(tx, sandbox.workspaceId, quotaOwner);
    const state = { ...reserveUsage(tx, sandbox, quotas), isNameTaken: isNameTaken(tx, sandbox) };
    checkCreate(sandbox, quotas, state);
    evictRecords(tx, sandbox, quotas, state);
    insert(tx, sandbox);
    if (sealedEnv) {
      const { id, workspaceId } = sandbox;
      tx.db.run("INSERT INTO envs (id, workspace_id, sealed) VALUES (?, ?, ?)", id, workspaceId, sealedEnv);
    }
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
    if (state !== before.state) changeLabelKeys(tx, sandbox, before.state);
    if (hasEnded(state) && !hasEnded(before.state)) {
      releaseUsage(tx, sandbox);
      deleteEnv(tx, id);
      deletePreviewsOf(tx, id);
    }
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

  recordUses({ db }: Transaction, uses: readonly SandboxUsed[]): void {
    for (const { sandboxId, at } of uses) {
      db.run(
        "UPDATE sandboxes SET last_used_at = :at WHERE id = :id AND (last_used_at IS NULL OR last_used_at < :at)",
        { id: sandboxId, at },
      );
    }
  },

  recordPull({ db }: Transaction, sandboxId: string, { downloadedBytes, totalBytes }: PullProgress): void {
    db.run(
      "UPDATE sandboxes SET downloaded_bytes = ?, total_bytes = ? WHERE id = ?",
      downloadedBytes,
      totalBytes,
      sandboxId,
    );
  },

  deleteCleaned(tx: Transaction, workspaceId: string, limit: number): number {
    return deleteRecords(
      tx,
      findRecords(tx, "workspace_id = ? AND cleaned_at IS NOT NULL LIMIT ?", workspaceId, limit),
    );
  },

  deleteEndedBefore(tx: Transaction, before: Date, limit: number): number {
    return deleteRecords(tx, findRecords(tx, "cleaned_at IS NOT NULL AND stopped_at < ? LIMIT ?", before, limit));
  },
} satisfies Transactions;

// Loaded by the database's writer thread: nothing heavy is imported here.
import { DomainError } from "@sandgate/kit/base/domain-error";
import type { StagedEvent } from "@sandgate/kit/events/outbox";
import type { IdempotencyRecord } from "@sandgate/kit/storage/idempotency-record";
import type { SqliteMigration, Transaction, Transactions } from "@sandgate/kit/storage/sqlite";
import { passGuard, purgeTransactions } from "@sandgate/kit/workspaces/sqlite-guards";
import {
  type Charge,
  checkInstallationQuota,
  checkQuota,
  checkUserQuota,
  type Held,
  isLimited,
  type Quotas,
} from "../domain/quota.ts";
import { hasEnded, type Sandbox } from "../domain/sandbox.ts";
import type { ImageUse } from "./store.ts";

export const migrations: readonly SqliteMigration[] = [
  `CREATE TABLE installation (id TEXT NOT NULL);
   CREATE TABLE sandboxes (
     id TEXT PRIMARY KEY,
     version INTEGER NOT NULL,
     workspace_id TEXT NOT NULL,
     name TEXT NOT NULL,
     state TEXT NOT NULL,
     created_at INTEGER NOT NULL,
     stopped_at INTEGER,
     cleaned_at INTEGER,
     record TEXT NOT NULL
   ) STRICT, WITHOUT ROWID;
   CREATE UNIQUE INDEX sandboxes_live_name ON sandboxes (workspace_id, name) WHERE state IN ('provisioning', 'ready');
   CREATE INDEX sandboxes_by_name ON sandboxes (workspace_id, name, created_at);
   CREATE INDEX sandboxes_newest ON sandboxes (workspace_id, created_at, id);
   CREATE INDEX sandboxes_unfinished ON sandboxes (id) WHERE cleaned_at IS NULL;
   CREATE INDEX sandboxes_uncleaned ON sandboxes (workspace_id) WHERE cleaned_at IS NULL;
   CREATE INDEX sandboxes_ended ON sandboxes (stopped_at) WHERE cleaned_at IS NOT NULL;
   CREATE TABLE guards (
     workspace_id TEXT PRIMARY KEY,
     live_count INTEGER NOT NULL DEFAULT 0,
     live_memory_mb INTEGER NOT NULL DEFAULT 0,
     deleted_at INTEGER,
     purged_at INTEGER
   ) STRICT, WITHOUT ROWID;
   CREATE INDEX guards_open_purges ON guards (workspace_id) WHERE deleted_at IS NOT NULL AND purged_at IS NULL;`,
  "CREATE INDEX guards_live ON guards (live_count, live_memory_mb) WHERE live_count > 0;",
  `CREATE INDEX sandboxes_by_state ON sandboxes (workspace_id, state, created_at, id);
   -- The labels of the records, with what lists of them need.
   CREATE TABLE labels (
     sandbox_id TEXT NOT NULL REFERENCES sandboxes (id) ON DELETE CASCADE,
     name TEXT NOT NULL,
     value TEXT NOT NULL,
     workspace_id TEXT NOT NULL,
     state TEXT NOT NULL,
     created_at INTEGER NOT NULL,
     PRIMARY KEY (sandbox_id, name)
   ) STRICT, WITHOUT ROWID;
   CREATE INDEX labels_newest ON labels (workspace_id, name, value, state, created_at, sandbox_id);`,
  {
    batches: `INSERT INTO labels (sandbox_id, name, value, workspace_id, state, created_at)
      SELECT s.id, label.key, label.value, s.workspace_id, s.state, s.created_at
      FROM (
        SELECT * FROM sandboxes
        WHERE id > (SELECT coalesce(max(sandbox_id), '') FROM labels) AND record ->> '$.labels' <> '{}'
        ORDER BY id LIMIT 1000
      ) AS s, json_each(s.record, '$.labels') AS label`,
  },
  `ALTER TABLE guards ADD COLUMN charged_to TEXT;
   ALTER TABLE guards ADD COLUMN charged_since INTEGER NOT NULL DEFAULT 0;
   CREATE INDEX guards_charged ON guards (charged_to, workspace_id, live_count, live_memory_mb) WHERE live_count > 0;`,
  "CREATE TABLE image_uses (name TEXT PRIMARY KEY, used_at INTEGER NOT NULL) STRICT, WITHOUT ROWID;",
  // For operators' lists over all workspaces.
  `CREATE INDEX sandboxes_of_all ON sandboxes (state, created_at, id);
   CREATE INDEX sandboxes_of_user ON sandboxes (record ->> '$.createdBy', state, created_at, id);`,
];

/** Dates as ISO text. */
export function encodeRecord(sandbox: Sandbox): string {
  const { cleanedAt: _, ...record } = sandbox;
  return JSON.stringify(record);
}

function changeLiveCount(tx: Transaction, workspaceId: string, count: number, memoryMb: number): void {
  tx.db.run(
    "UPDATE guards SET live_count = live_count + ?, live_memory_mb = live_memory_mb + ? WHERE workspace_id = ?",
    count,
    memoryMb,
    workspaceId,
  );
}

function chargeWorkspace(tx: Transaction, workspaceId: string, { userId, since }: Charge): void {
  tx.db.run(
    `INSERT INTO guards (workspace_id, charged_to, charged_since) VALUES (?, ?, ?)
     ON CONFLICT DO UPDATE SET charged_to = excluded.charged_to, charged_since = excluded.charged_since
     WHERE excluded.charged_since > charged_since`,
    workspaceId,
    userId,
    since,
  );
}

function reserveQuotas(
  tx: Transaction,
  sandbox: Sandbox,
  charge: Charge | undefined,
  { workspace, user, installation }: Quotas,
): void {
  const { workspaceId } = sandbox;
  if (!passGuard(tx, workspaceId)) throw new DomainError("WORKSPACE_FORBIDDEN", "The workspace was deleted.");
  if (charge) chargeWorkspace(tx, workspaceId, charge);
  const live = tx.db.get<{ live_count: number; live_memory_mb: number; charged_to: string | null }>(
    "SELECT live_count, live_memory_mb, charged_to FROM guards WHERE workspace_id = ?",
    workspaceId,
  );
  checkQuota(workspace, {
    sandboxes: (live?.live_count ?? 0) + 1,
    memoryMb: (live?.live_memory_mb ?? 0) + sandbox.image.memoryMb,
  });
  changeLiveCount(tx, workspaceId, 1, sandbox.image.memoryMb);
  if (live?.charged_to && isLimited(user)) {
    const all = tx.db.get<Held>(
      `SELECT sum(live_count) AS sandboxes, sum(live_memory_mb) AS memoryMb FROM guards
       WHERE charged_to = ? AND live_count > 0`,
      live.charged_to,
    );
    if (all) checkUserQuota(user, all);
  }
  if (!isLimited(installation)) return;
  const all = tx.db.get<Held>(
    "SELECT sum(live_count) AS sandboxes, sum(live_memory_mb) AS memoryMb FROM guards WHERE live_count > 0",
  );
  if (all) checkInstallationQuota(installation, all);
}

export const transactions = {
  ...purgeTransactions,

  installationId(tx: Transaction, fresh: string): string {
    const row = tx.db.get<{ id: string }>("SELECT id FROM installation");
    if (row) {
      return row.id;
    }
    tx.db.run("INSERT INTO installation (id) VALUES (?)", fresh);
    return fresh;
  },

  create(
    tx: Transaction,
    sandbox: Sandbox,
    charge: Charge | undefined,
    quotas: Quotas,
    events: readonly StagedEvent[],
    record: IdempotencyRecord | undefined,
  ): void {
    tx.keepIdempotencyRecord(record);
    reserveQuotas(tx, sandbox, charge, quotas);
    const taken = tx.db.get(
      "SELECT 1 FROM sandboxes WHERE workspace_id = ? AND name = ? AND state IN ('provisioning', 'ready')",
      sandbox.workspaceId,
      sandbox.name,
    );
    if (taken) {
      throw new DomainError("SANDBOX_NAME_CONFLICT", `A live sandbox has the name ${sandbox.name}.`);
    }
    tx.db.run(
      "INSERT INTO sandboxes (id, version, workspace_id, name, state, created_at, record) VALUES (?, ?, ?, ?, ?, ?, ?)",
      sandbox.id,
      sandbox.version,
      sandbox.workspaceId,
      sandbox.name,
      sandbox.state,
      sandbox.createdAt.getTime(),
      encodeRecord(sandbox),
    );
    for (const [name, value] of Object.entries(sandbox.labels)) {
      tx.db.run(
        "INSERT INTO labels (sandbox_id, name, value, workspace_id, state, created_at) VALUES (?, ?, ?, ?, ?, ?)",
        sandbox.id,
        name,
        value,
        sandbox.workspaceId,
        sandbox.state,
        sandbox.createdAt,
      );
    }
    tx.publish(events);
  },

  chargeWorkspace,

  update(tx: Transaction, sandbox: Sandbox, events: readonly StagedEvent[]): boolean {
    const before = tx.db.get<{ state: Sandbox["state"] }>(
      "SELECT state FROM sandboxes WHERE id = ? AND version = ?",
      sandbox.id,
      sandbox.version - 1,
    );
    if (!before) {
      return false;
    }
    tx.db.run(
      "UPDATE sandboxes SET version = ?, state = ?, stopped_at = ?, record = ? WHERE id = ?",
      sandbox.version,
      sandbox.state,
      sandbox.stoppedAt?.getTime() ?? null,
      encodeRecord(sandbox),
      sandbox.id,
    );
    if (sandbox.state !== before.state) {
      tx.db.run("UPDATE labels SET state = ? WHERE sandbox_id = ?", sandbox.state, sandbox.id);
    }
    if (hasEnded(sandbox.state) && !hasEnded(before.state)) {
      changeLiveCount(tx, sandbox.workspaceId, -1, -sandbox.image.memoryMb);
    }
    tx.publish(events);
    return true;
  },

  markCleaned(tx: Transaction, id: string, at: Date): void {
    tx.db.run(
      "UPDATE sandboxes SET cleaned_at = ? WHERE id = ? AND cleaned_at IS NULL AND state IN ('stopped', 'failed')",
      at.getTime(),
      id,
    );
  },

  deleteCleaned(tx: Transaction, workspaceId: string, limit: number): number {
    return tx.db.run(
      `DELETE FROM sandboxes WHERE id IN
         (SELECT id FROM sandboxes WHERE workspace_id = ? AND cleaned_at IS NOT NULL LIMIT ?)`,
      workspaceId,
      limit,
    );
  },

  recordImageUse(tx: Transaction, { name, at }: ImageUse): void {
    tx.db.run(
      `INSERT INTO image_uses (name, used_at) VALUES (?, ?)
       ON CONFLICT (name) DO UPDATE SET used_at = max(used_at, excluded.used_at)`,
      name,
      at.getTime(),
    );
  },

  forgetImageUses(tx: Transaction, names: readonly string[]): void {
    tx.db.run("DELETE FROM image_uses WHERE name IN (SELECT value FROM json_each(?))", JSON.stringify(names));
  },

  deleteEndedBefore(tx: Transaction, before: Date, limit: number): number {
    return tx.db.run(
      `DELETE FROM sandboxes WHERE id IN
         (SELECT id FROM sandboxes WHERE cleaned_at IS NOT NULL AND stopped_at < ? LIMIT ?)`,
      before.getTime(),
      limit,
    );
  },
} satisfies Transactions;

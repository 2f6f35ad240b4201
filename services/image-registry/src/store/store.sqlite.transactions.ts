import type { StagedEvent } from "@sandgate/kit/events/outbox";
import type { IdempotencyRecord } from "@sandgate/kit/storage/idempotency-record";
import type { Stale } from "@sandgate/kit/storage/optimistic";
import type { Transaction, Transactions } from "@sandgate/kit/storage/sqlite";
import { passGuard, purgeTransactions } from "@sandgate/kit/workspaces/sqlite-guards";
import type { Caps } from "../domain/caps.ts";
import type { ImageRecord, RegistryRecord, RegistryVersion, VerifiedLayer } from "./store.ts";

function isCurrent(tx: Transaction, { id, version }: RegistryVersion): boolean {
  return tx.db.get("SELECT 1 FROM registries WHERE id = ? AND version = ?", id, version) !== undefined;
}

function isInUse(tx: Transaction, registryId: string): boolean {
  return tx.db.get("SELECT 1 FROM images WHERE registry_id = ? LIMIT 1", registryId) !== undefined;
}

/** Whether another registry of the workspace has this name. */
function isNameTaken(tx: Transaction, { id, workspaceId, name }: RegistryRecord): boolean {
  return (
    tx.db.get("SELECT 1 FROM registries WHERE workspace_id = ? AND name = ? AND id <> ?", workspaceId, name, id) !==
    undefined
  );
}

/** Whether the workspace has as many as it may; 0: no limit. */
function isFull(tx: Transaction, table: "images" | "registries", workspaceId: string, max: number): boolean {
  if (max === 0) return false;
  return tx.db.all(`SELECT 1 FROM ${table} WHERE workspace_id = ? LIMIT ?`, workspaceId, max).length === max;
}

function insertImage(tx: Transaction, image: ImageRecord): void {
  tx.db.run(
    `INSERT INTO images (id, workspace_id, name, image, description, tag, enabled, memory_mb, readiness_port, ttl_seconds,
       registry_id, created_at, updated_at, version)
     VALUES (:id, :workspaceId, :name, :image, :description, :tag, :enabled, :memoryMb, :readinessPort, :ttlSeconds,
       :registryId, :createdAt, :updatedAt, :version)`,
    { ...image },
  );
}

export const transactions = {
  ...purgeTransactions,

  createImage(
    tx: Transaction,
    image: ImageRecord,
    registry: RegistryVersion | undefined,
    caps: Caps,
    events: readonly StagedEvent[],
    record: IdempotencyRecord | undefined,
  ): "done" | Stale | "workspace_deleted" | "too_many" {
    if (image.workspaceId !== "") {
      if (!passGuard(tx, image.workspaceId)) return "workspace_deleted";
      if (isFull(tx, "images", image.workspaceId, caps.maxImages)) return "too_many";
    }
    if (registry && !isCurrent(tx, registry)) return "stale";
    tx.keepIdempotencyRecord(record);
    insertImage(tx, image);
    tx.publish(events);
    return "done";
  },

  createDefaultImage(tx: Transaction, image: ImageRecord, events: readonly StagedEvent[]): void {
    if (tx.db.run("INSERT OR IGNORE INTO seeds (name) VALUES ('default_image')") === 0) return;
    insertImage(tx, image);
    tx.publish(events);
  },

  updateImage(
    tx: Transaction,
    image: ImageRecord,
    registry: RegistryVersion | undefined,
    events: readonly StagedEvent[],
  ): "done" | Stale {
    if (registry && !isCurrent(tx, registry)) return "stale";
    const { workspaceId: _workspace, createdAt: _created, ...changed } = image;
    const updated = tx.db.run(
      `UPDATE images SET name = :name, image = :image, description = :description, tag = :tag, enabled = :enabled,
         memory_mb = :memoryMb, readiness_port = :readinessPort, ttl_seconds = :ttlSeconds, registry_id = :registryId,
         updated_at = :updatedAt, version = version + 1
       WHERE id = :id AND version = :version`,
      changed,
    );
    if (updated === 0) return "stale";
    tx.publish(events);
    return "done";
  },

  deleteImage(tx: Transaction, imageId: string, version: number, events: readonly StagedEvent[]): "done" | Stale {
    if (tx.db.run("DELETE FROM images WHERE id = ? AND version = ?", imageId, version) === 0) return "stale";
    tx.publish(events);
    return "done";
  },

  createRegistry(
    tx: Transaction,
    registry: RegistryRecord,
    caps: Caps,
    events: readonly StagedEvent[],
    record: IdempotencyRecord | undefined,
  ): "done" | "name_taken" | "workspace_deleted" | "too_many" {
    if (!passGuard(tx, registry.workspaceId)) return "workspace_deleted";
    // Before the idempotency record, which would be kept with these answers.
    if (isNameTaken(tx, registry)) return "name_taken";
    if (isFull(tx, "registries", registry.workspaceId, caps.maxRegistries)) return "too_many";
    tx.keepIdempotencyRecord(record);
    tx.db.run(
      `INSERT INTO registries (id, workspace_id, name, url, host, username, sealed_password, created_at, updated_at, version)
       VALUES (:id, :workspaceId, :name, :url, :host, :username, :sealedPassword, :createdAt, :updatedAt, :version)`,
      { ...registry },
    );
    tx.publish(events);
    return "done";
  },

  updateRegistry(
    tx: Transaction,
    registry: RegistryRecord,
    events: readonly StagedEvent[],
  ): "done" | Stale | "name_taken" | "in_use" {
    const before = tx.db.get<{ host: string }>(
      "SELECT host FROM registries WHERE id = ? AND version = ?",
      registry.id,
      registry.version,
    );
    if (before === undefined) return "stale";
    if (before.host !== registry.host && isInUse(tx, registry.id)) return "in_use";
    if (isNameTaken(tx, registry)) return "name_taken";
    const { workspaceId: _workspace, createdAt: _created, version: _version, ...changed } = registry;
    tx.db.run(
      `UPDATE registries SET name = :name, url = :url, host = :host, username = :username,
         sealed_password = :sealedPassword, updated_at = :updatedAt, version = version + 1 WHERE id = :id`,
      changed,
    );
    tx.publish(events);
    return "done";
  },

  deleteRegistry(
    tx: Transaction,
    registryId: string,
    version: number,
    events: readonly StagedEvent[],
  ): "done" | Stale | "in_use" {
    if (isInUse(tx, registryId)) return "in_use";
    if (tx.db.run("DELETE FROM registries WHERE id = ? AND version = ?", registryId, version) === 0) return "stale";
    tx.publish(events);
    return "done";
  },

  putVerifiedLayers(tx: Transaction, host: string, layers: readonly VerifiedLayer[], at: Date): void {
    for (const { digest, diffId } of layers) {
      tx.db.run(
        `INSERT INTO verified_layers (host, digest, diff_id, verified_at) VALUES (?, ?, ?, ?)
         ON CONFLICT (host, digest) DO UPDATE SET diff_id = excluded.diff_id, verified_at = excluded.verified_at`,
        host,
        digest,
        diffId,
        at,
      );
    }
  },

  findVerifiedBeyond(tx: Transaction, count: number): number | undefined {
    const row = tx.db.get<{ verified_at: number }>(
      "SELECT verified_at FROM verified_layers ORDER BY verified_at DESC LIMIT 1 OFFSET ?",
      count,
    );
    return row?.verified_at;
  },

  deleteVerifiedBefore(tx: Transaction, before: Date, limit: number): number {
    return tx.db.run(
      `DELETE FROM verified_layers WHERE (host, digest) IN
         (SELECT host, digest FROM verified_layers WHERE verified_at < ? ORDER BY verified_at LIMIT ?)`,
      before,
      limit,
    );
  },

  purgeBatch(tx: Transaction, workspaceId: string, limit: number): boolean {
    let removed = 0;
    for (const table of ["images", "registries"]) {
      removed += tx.db.run(
        `DELETE FROM ${table} WHERE id IN (SELECT id FROM ${table} WHERE workspace_id = ? LIMIT ?)`,
        workspaceId,
        limit,
      );
    }
    return removed === 0;
  },
} satisfies Transactions;

import type { StagedEvent } from "@sandgate/kit/events/outbox";
import type { IdempotencyRecord } from "@sandgate/kit/storage/idempotency-record";
import type { Transaction, Transactions } from "@sandgate/kit/storage/sqlite";
import { checkLinkCount, checkPreviewCount, type Preview, type PreviewLink } from "../domain/previews.ts";

/** In the transaction of something else. */
export function deletePreviewsOf({ db }: Transaction, sandboxId: string): void {
  db.run("DELETE FROM previews WHERE sandbox_id = ?", sandboxId);
}

function count({ db }: Transaction, what: string, ...parameters: string[]): number {
  return db.get<{ count: number }>(`SELECT count(*) AS count FROM ${what}`, ...parameters)?.count ?? 0;
}

export const previewTransactions = {
  createPreview(
    tx: Transaction,
    preview: Preview,
    o: { events: readonly StagedEvent[]; record?: IdempotencyRecord | undefined },
  ): boolean {
    const { sandboxId, createdAt } = preview;
    if (!tx.db.get("SELECT 1 FROM sandboxes WHERE id = ? AND state = 'ready'", sandboxId)) return false;
    tx.keepIdempotencyRecord(o.record);
    tx.db.run("DELETE FROM previews WHERE sandbox_id = ? AND expires_at <= ?", sandboxId, createdAt);
    checkPreviewCount(count(tx, "previews WHERE sandbox_id = ?", sandboxId));
    tx.db.run(
      `INSERT INTO previews (id, sandbox_id, workspace_id, label, token_hash, port, public, host_header, created_by,
         created_at, expires_at)
       VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)`,
      preview.id,
      sandboxId,
      preview.workspaceId,
      preview.label,
      preview.tokenHash,
      preview.port,
      preview.public,
      preview.hostHeader,
      preview.createdBy,
      createdAt,
      preview.expiresAt,
    );
    tx.publish(o.events);
    return true;
  },

  deletePreview(tx: Transaction, id: string, events: readonly StagedEvent[]): boolean {
    if (tx.db.run("DELETE FROM previews WHERE id = ?", id) === 0) return false;
    tx.publish(events);
    return true;
  },

  deletePreviewsOfUser({ db }: Transaction, workspaceId: string | undefined, userId: string, by: Date): number {
    const ofUser = "DELETE FROM previews WHERE created_by = ? AND created_at <= ?";
    return workspaceId === undefined
      ? db.run(ofUser, userId, by)
      : db.run(`${ofUser} AND workspace_id = ?`, userId, by, workspaceId);
  },

  createPreviewLink(tx: Transaction, link: PreviewLink, o: { now: Date; events: readonly StagedEvent[] }): boolean {
    const { previewId } = link;
    if (!tx.db.get("SELECT 1 FROM previews WHERE id = ?", previewId)) return false;
    tx.db.run("DELETE FROM preview_links WHERE preview_id = ? AND expires_at <= ?", previewId, o.now);
    checkLinkCount(count(tx, "preview_links WHERE preview_id = ?", previewId));
    tx.db.run(
      "INSERT INTO preview_links (hash, preview_id, expires_at) VALUES (?, ?, ?)",
      link.hash,
      previewId,
      link.expiresAt,
    );
    tx.publish(o.events);
    return true;
  },

  takePreviewLink({ db }: Transaction, hash: Uint8Array): PreviewLink | undefined {
    const row = db.get<{ preview_id: string; expires_at: number }>(
      "SELECT preview_id, expires_at FROM preview_links WHERE hash = ?",
      hash,
    );
    if (!row) return undefined;
    db.run("DELETE FROM preview_links WHERE hash = ?", hash);
    return { hash, previewId: row.preview_id, expiresAt: new Date(row.expires_at) };
  },
} satisfies Transactions;

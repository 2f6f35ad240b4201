import type { Transaction, TransactionOf } from "@sandgate/kit/storage/sqlite";
import { passGuard } from "@sandgate/kit/workspaces/sqlite-guards";
import { isGlobalDefault } from "../domain/images.ts";
import { decideCreate, type WorkspaceState } from "../domain/quotas.ts";
import type { RegistryVersion } from "../domain/registries.ts";
import type { Images } from "./images.ts";
import { imageTable } from "./tables.sqlite.ts";

/** @param max the workspace's quota of this kind */
export function readWorkspace(
  tx: Transaction,
  workspaceId: string,
  kind: "images" | "registries",
  max: number,
): WorkspaceState {
  const sql = `SELECT 1 FROM ${kind} WHERE workspace_id = ? LIMIT ?`;
  return { deleted: !passGuard(tx, workspaceId), count: tx.db.all(sql, workspaceId, max).length };
}

function isCurrent(tx: Transaction, registry: RegistryVersion | undefined): boolean {
  if (!registry) return true;
  const sql = "SELECT 1 FROM registries WHERE id = ? AND version = ?";
  return tx.db.get(sql, registry.id, registry.version) !== undefined;
}

export const imageTransactions = {
  createImage(tx, image, registry, { maxImages }, events, record) {
    if (!isGlobalDefault(image)) {
      const outcome = decideCreate(readWorkspace(tx, image.workspaceId, "images", maxImages), maxImages);
      if (outcome !== "done") return outcome;
    }
    if (!isCurrent(tx, registry)) return "stale";
    tx.keepIdempotencyRecord(record);
    tx.db.run(imageTable.insert, { ...image });
    tx.publish(events);
    return "done";
  },

  createDefaultImage(tx, image, events) {
    if (tx.db.run("INSERT OR IGNORE INTO seeds (name) VALUES ('default_image')") === 0) return;
    tx.db.run(imageTable.insert, { ...image });
    tx.publish(events);
  },

  updateImage(tx, image, registry, events) {
    if (!isCurrent(tx, registry) || tx.db.run(imageTable.update, { ...image }) === 0) return "stale";
    tx.publish(events);
    return "done";
  },

  deleteImage(tx, imageId, version, events) {
    if (tx.db.run("DELETE FROM images WHERE id = ? AND version = ?", imageId, version) === 0) return "stale";
    tx.publish(events);
    return "done";
  },
} satisfies {
  createImage: TransactionOf<Images["create"]>;
  createDefaultImage: TransactionOf<Images["createDefault"]>;
  updateImage: TransactionOf<Images["update"]>;
  deleteImage: TransactionOf<Images["delete"]>;
};

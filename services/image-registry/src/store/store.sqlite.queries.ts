// Loaded by the database's reader thread: nothing heavy is imported here.
import type { Cursor } from "@sandgate/kit/base/page";
import type { Queries, QueryConnection } from "@sandgate/kit/storage/sqlite";
import type { ImageView } from "../domain/images.ts";
import type { RegistryRecord } from "../domain/registries.ts";
import type { ImageFilter } from "./images.ts";
import { imageTable, registryTable } from "./tables.sqlite.ts";

export type ImageRow = { registryName: string | null };

export const selectImages = `SELECT ${imageTable.columns},
  (SELECT name FROM registries r WHERE r.id = registry_id) AS registryName FROM images`;

export function toImageView(row: ImageRow): ImageView {
  return { ...imageTable.toRecord(row), registryName: row.registryName ?? undefined };
}

function positionAfter(after: Cursor | undefined): { createdAt: number; id: string } {
  return { createdAt: after?.createdAt.getTime() ?? Number.MAX_SAFE_INTEGER, id: after?.id ?? "" };
}

/** The images of the workspace and the global defaults, which the index of each has in their order. */
function visible(select: string, { enabledOnly }: ImageFilter, more: string): string {
  const enabled = enabledOnly ? "AND enabled = 1" : "";
  return `${select} WHERE workspace_id = :workspaceId ${enabled} ${more}
    UNION ALL ${select} WHERE workspace_id = '' ${enabled} ${more}`;
}

export const queries = {
  listImages(db: QueryConnection, filter: ImageFilter, after: Cursor | undefined, limit: number): ImageView[] {
    const rows = db.all<ImageRow>(
      `${visible(selectImages, filter, "AND (created_at, id) < (:createdAt, :id)")}
       ORDER BY created_at DESC, id DESC LIMIT :limit`,
      { workspaceId: filter.workspaceId, ...positionAfter(after), limit },
    );
    return rows.map(toImageView);
  },

  countImages(db: QueryConnection, filter: ImageFilter): number {
    const row = db.get<{ total: number }>(
      `SELECT count(*) AS total FROM (${visible("SELECT 1 FROM images", filter, "")})`,
      { workspaceId: filter.workspaceId },
    );
    return row?.total ?? 0;
  },

  listRegistries(db: QueryConnection, workspaceId: string, after: Cursor | undefined, limit: number): RegistryRecord[] {
    const rows = db.all(
      `SELECT ${registryTable.columns} FROM registries
       WHERE workspace_id = :workspaceId AND (created_at, id) < (:createdAt, :id)
       ORDER BY created_at DESC, id DESC LIMIT :limit`,
      { workspaceId, ...positionAfter(after), limit },
    );
    return rows.map(registryTable.toRecord);
  },
} satisfies Queries;

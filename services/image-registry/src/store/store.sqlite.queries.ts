// Loaded by the database's reader thread: nothing heavy is imported here.
import type { Cursor } from "@sandgate/kit/base/page";
import type { Queries, QueryConnection } from "@sandgate/kit/storage/sqlite";
import type { ImageFilter } from "./store.ts";

export type ImageRow = {
  id: string;
  workspace_id: string;
  name: string;
  image: string;
  description: string | null;
  tag: string;
  enabled: number;
  memory_mb: number;
  readiness_port: number | null;
  ttl_seconds: number | null;
  registry_id: string | null;
  registry_name: string | null;
  created_at: number;
  updated_at: number;
  version: number;
};
export type RegistryRow = {
  id: string;
  workspace_id: string;
  name: string;
  url: string;
  host: string;
  username: string;
  sealed_password: Uint8Array;
  created_at: number;
  updated_at: number;
  version: number;
};

export const selectImages =
  "SELECT *, (SELECT name FROM registries r WHERE r.id = registry_id) AS registry_name FROM images";

function placeAfter(after: Cursor | undefined): { createdAt: number; id: string } {
  return { createdAt: after?.createdAt.getTime() ?? Number.MAX_SAFE_INTEGER, id: after?.id ?? "" };
}

/** The images of the workspace and the global defaults, which the index of each has in their order. */
function visible(select: string, { enabledOnly }: ImageFilter, more: string): string {
  const enabled = enabledOnly ? "AND enabled = 1" : "";
  return `${select} WHERE workspace_id = :workspaceId ${enabled} ${more}
    UNION ALL ${select} WHERE workspace_id = '' ${enabled} ${more}`;
}

export const queries = {
  listImages(db: QueryConnection, filter: ImageFilter, after: Cursor | undefined, limit: number): ImageRow[] {
    return db.all<ImageRow>(
      `${visible(selectImages, filter, "AND (created_at, id) < (:createdAt, :id)")}
       ORDER BY created_at DESC, id DESC LIMIT :limit`,
      { workspaceId: filter.workspaceId, ...placeAfter(after), limit },
    );
  },

  countImages(db: QueryConnection, filter: ImageFilter): number {
    const row = db.get<{ total: number }>(
      `SELECT count(*) AS total FROM (${visible("SELECT 1 FROM images", filter, "")})`,
      {
        workspaceId: filter.workspaceId,
      },
    );
    return row?.total ?? 0;
  },

  listRegistries(db: QueryConnection, workspaceId: string, after: Cursor | undefined, limit: number): RegistryRow[] {
    return db.all<RegistryRow>(
      `SELECT * FROM registries WHERE workspace_id = :workspaceId AND (created_at, id) < (:createdAt, :id)
       ORDER BY created_at DESC, id DESC LIMIT :limit`,
      { workspaceId, ...placeAfter(after), limit },
    );
  },
} satisfies Queries;

import { toOptionalDate } from "@sandgate/kit/base/time";
import { type SqliteStoreOptions, serviceStoreOf } from "@sandgate/kit/storage/open-store";
import type { SealedColumn } from "@sandgate/kit/storage/sealed-values";
import { openSqlite } from "@sandgate/kit/storage/sqlite";
import { createPurges } from "@sandgate/kit/workspaces/sqlite-guards";
import { type ImageRow, type queries, type RegistryRow, selectImages } from "./store.sqlite.queries.ts";
import type { transactions } from "./store.sqlite.transactions.ts";
import type { ImageRegistryStore, ImageView, RegistryRecord } from "./store.ts";

/** Times are epoch milliseconds. */
const migrations: readonly string[] = [
  `
  CREATE TABLE images (
    id TEXT PRIMARY KEY,
    -- Empty: a global default.
    workspace_id TEXT NOT NULL,
    name TEXT NOT NULL,
    image TEXT NOT NULL,
    description TEXT,
    tag TEXT NOT NULL,
    enabled INTEGER NOT NULL,
    memory_mb INTEGER NOT NULL,
    readiness_port INTEGER,
    ttl_seconds INTEGER,
    registry_id TEXT,
    created_at INTEGER NOT NULL,
    updated_at INTEGER NOT NULL,
    version INTEGER NOT NULL
  ) STRICT;
  CREATE INDEX images_by_workspace ON images (workspace_id, created_at, id);
  CREATE INDEX images_by_registry ON images (registry_id) WHERE registry_id IS NOT NULL;

  CREATE TABLE registries (
    id TEXT PRIMARY KEY,
    workspace_id TEXT NOT NULL,
    name TEXT NOT NULL,
    url TEXT NOT NULL,
    host TEXT NOT NULL,
    username TEXT NOT NULL,
    sealed_password BLOB NOT NULL,
    created_at INTEGER NOT NULL,
    updated_at INTEGER NOT NULL,
    version INTEGER NOT NULL,
    UNIQUE (workspace_id, name)
  ) STRICT;
  CREATE INDEX registries_by_workspace ON registries (workspace_id, created_at, id);

  -- One row per workspace that has had something here; it stays when the workspace goes.
  CREATE TABLE guards (
    workspace_id TEXT PRIMARY KEY,
    deleted_at INTEGER,
    purged_at INTEGER,
    version INTEGER NOT NULL DEFAULT 1
  ) STRICT, WITHOUT ROWID;
  CREATE INDEX guards_open ON guards (deleted_at) WHERE deleted_at IS NOT NULL AND purged_at IS NULL;

  -- What was made at the first start and is not made again.
  CREATE TABLE seeds (name TEXT PRIMARY KEY) STRICT, WITHOUT ROWID;
  `,
  "ALTER TABLE guards DROP COLUMN version;",
  `
  -- Layers whose bytes were downloaded from a registry and have their digest. Of no workspace: it says where they can be got.
  CREATE TABLE verified_layers (
    host TEXT NOT NULL,
    digest TEXT NOT NULL,
    diff_id TEXT NOT NULL,
    verified_at INTEGER NOT NULL,
    PRIMARY KEY (host, digest)
  ) STRICT, WITHOUT ROWID;
  CREATE INDEX verified_layers_by_age ON verified_layers (verified_at);
  `,
  "CREATE INDEX images_enabled ON images (workspace_id, created_at, id) WHERE enabled = 1;",
];

type VerifiedLayerRow = { digest: string; diff_id: string };

function toImage(row: ImageRow): ImageView {
  return {
    id: row.id,
    workspaceId: row.workspace_id,
    name: row.name,
    image: row.image,
    description: row.description ?? undefined,
    tag: row.tag,
    enabled: row.enabled === 1,
    memoryMb: row.memory_mb,
    readinessPort: row.readiness_port ?? undefined,
    ttlSeconds: row.ttl_seconds ?? undefined,
    registryId: row.registry_id ?? undefined,
    registryName: row.registry_name ?? undefined,
    createdAt: new Date(row.created_at),
    updatedAt: new Date(row.updated_at),
    version: row.version,
  };
}

function toRegistry(row: RegistryRow): RegistryRecord {
  return {
    id: row.id,
    workspaceId: row.workspace_id,
    name: row.name,
    url: row.url,
    host: row.host,
    username: row.username,
    sealedPassword: row.sealed_password,
    createdAt: new Date(row.created_at),
    updatedAt: new Date(row.updated_at),
    version: row.version,
  };
}

const sealedColumns: readonly SealedColumn[] = [
  { table: "registries", column: "sealed_password", workspace: "workspace_id" },
];

/** Opens the service's SQLite file, creating and migrating it as needed. */
export async function openSqliteStore(options: SqliteStoreOptions): Promise<ImageRegistryStore> {
  const database = await openSqlite<typeof transactions, typeof queries>({
    ...options,
    migrations,
    transactions: new URL("./store.sqlite.transactions.ts", import.meta.url),
    queries: new URL("./store.sqlite.queries.ts", import.meta.url),
  });
  const { read, query, write } = database;

  return {
    ...serviceStoreOf(database, sealedColumns),
    createImage: write.createImage,
    createDefaultImage: write.createDefaultImage,
    updateImage: write.updateImage,
    deleteImage: write.deleteImage,
    createRegistry: write.createRegistry,
    updateRegistry: write.updateRegistry,
    deleteRegistry: write.deleteRegistry,
    putVerifiedLayers: write.putVerifiedLayers,
    // By the writer thread, as it goes through as many rows.
    findVerifiedBeyond: async (count) => toOptionalDate(await write.findVerifiedBeyond(count)),
    deleteVerifiedBefore: write.deleteVerifiedBefore,
    purgeBatch: write.purgeBatch,
    ...createPurges(read, write),

    async findImage(imageId, workspaceId) {
      const row = read.get<ImageRow>(`${selectImages} WHERE id = ? AND workspace_id IN (?, '')`, imageId, workspaceId);
      return row && toImage(row);
    },

    async listImages(filter, after, limit) {
      return (await query.listImages(filter, after, limit)).map(toImage);
    },

    countImages: (filter) => query.countImages(filter),

    async findRegistry(registryId, workspaceId) {
      const row = read.get<RegistryRow>(
        "SELECT * FROM registries WHERE id = ? AND workspace_id = ?",
        registryId,
        workspaceId,
      );
      return row && toRegistry(row);
    },

    async findVerifiedLayers(host, digests) {
      return read
        .all<VerifiedLayerRow>(
          `SELECT digest, diff_id FROM verified_layers
           WHERE host = ? AND digest IN (SELECT value FROM json_each(?))`,
          host,
          JSON.stringify(digests),
        )
        .map(({ digest, diff_id }) => ({ digest, diffId: diff_id }));
    },

    async listRegistries(workspaceId, after, limit) {
      return (await query.listRegistries(workspaceId, after, limit)).map(toRegistry);
    },
  };
}

// Loaded by the database's threads too: nothing heavy is imported here.
import { sealedIndex } from "@sandgate/kit/storage/sqlite-sealed";
import { purgedIndex } from "@sandgate/kit/workspaces/sqlite-guards";
import type { ImageRecord } from "../domain/images.ts";
import type { RegistryRecord } from "../domain/registries.ts";

/** Times are epoch milliseconds. */
export const migrations: readonly string[] = [
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
  purgedIndex,
  `
  CREATE TABLE verified_layer_count (layers INTEGER NOT NULL) STRICT;
  INSERT INTO verified_layer_count SELECT count(*) FROM verified_layers;
  CREATE TRIGGER verified_layer_added AFTER INSERT ON verified_layers BEGIN
    UPDATE verified_layer_count SET layers = layers + 1;
  END;
  CREATE TRIGGER verified_layer_forgotten AFTER DELETE ON verified_layers BEGIN
    UPDATE verified_layer_count SET layers = layers - 1;
  END;
  ${sealedIndex({ table: "registries", column: "sealed_password" })}
  `,
  "CREATE INDEX images_by_name ON images (workspace_id, name);",
];

/** How the fields of a record are stored; the column of a field has its name in snake case. */
type Columns<R> = {
  readonly [F in keyof R]-?: R[F] extends boolean ? "boolean" : R[F] extends Date ? "time" : "value";
};

export const imageTable = describeTable<ImageRecord>("images", {
  id: "value",
  workspaceId: "value",
  name: "value",
  image: "value",
  description: "value",
  tag: "value",
  enabled: "boolean",
  memoryMb: "value",
  readinessPort: "value",
  ttlSeconds: "value",
  registryId: "value",
  createdAt: "time",
  updatedAt: "time",
  version: "value",
});

export const registryTable = describeTable<RegistryRecord>("registries", {
  id: "value",
  workspaceId: "value",
  name: "value",
  url: "value",
  host: "value",
  username: "value",
  sealedPassword: "value",
  createdAt: "time",
  updatedAt: "time",
  version: "value",
});

function describeTable<R extends { readonly id: string; readonly version: number }>(
  table: string,
  columns: Columns<R>,
) {
  const kinds = new Map<string, string>(Object.entries(columns));
  const fields = [...kinds.keys()];
  const changes = fields.filter((field) => field !== "id" && field !== "version");
  return {
    /** The columns under the names of the record's fields, as `toRecord` takes them. */
    columns: fields.map((field) => `${toColumn(field)} AS ${field}`).join(", "),
    /** Its parameters are a record. */
    insert: `INSERT INTO ${table} (${fields.map(toColumn).join(", ")}) VALUES (${fields.map((field) => `:${field}`).join(", ")})`,
    /**
     * Its parameters are what the record becomes, with the version that was read; it changes nothing on any other
     * version.
     */
    update: `UPDATE ${table} SET ${changes.map((field) => `${toColumn(field)} = :${field}`).join(", ")}, version = version + 1
      WHERE id = :id AND version = :version`,
    toRecord(row: Readonly<Record<string, unknown>>): R {
      const read = (field: string) => {
        const value = row[field];
        if (kinds.get(field) === "boolean") return value === 1;
        return kinds.get(field) === "time" ? new Date(Number(value)) : (value ?? undefined);
      };
      // Every field is there, as `columns` names them all.
      return Object.fromEntries(fields.map((field) => [field, read(field)])) as R;
    },
  };
}

function toColumn(field: string): string {
  return field.replace(/[A-Z]/g, (letter) => `_${letter.toLowerCase()}`);
}

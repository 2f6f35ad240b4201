/** The tables of this service. Times are epoch milliseconds. */
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
];

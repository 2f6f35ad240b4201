/** The tables of this service. Times are epoch milliseconds; roles are the numbers of sandgate.common.v1.Role. */
export const migrations: readonly string[] = [
  `
  CREATE TABLE workspaces (
    id TEXT PRIMARY KEY,
    name TEXT NOT NULL,
    created_at INTEGER NOT NULL,
    updated_at INTEGER NOT NULL,
    version INTEGER NOT NULL
  ) STRICT;

  CREATE TABLE members (
    workspace_id TEXT NOT NULL,
    user_id TEXT NOT NULL,
    role INTEGER NOT NULL,
    joined_at INTEGER NOT NULL,
    PRIMARY KEY (workspace_id, user_id)
  ) STRICT, WITHOUT ROWID;
  CREATE INDEX members_by_user ON members (user_id);
  CREATE INDEX members_by_joining ON members (workspace_id, joined_at, user_id);

  -- A row stays when the workspace goes, so that a personal workspace is made once.
  CREATE TABLE personal_workspaces (user_id TEXT PRIMARY KEY) STRICT, WITHOUT ROWID;

  CREATE TABLE departed_users (user_id TEXT PRIMARY KEY, departed_at INTEGER NOT NULL) STRICT, WITHOUT ROWID;

  CREATE TABLE deletions (
    workspace_id TEXT PRIMARY KEY,
    deleted_at INTEGER NOT NULL,
    completed_at INTEGER,
    announcements INTEGER NOT NULL,
    announce_again_at INTEGER NOT NULL,
    version INTEGER NOT NULL
  ) STRICT, WITHOUT ROWID;
  CREATE INDEX deletions_open ON deletions (announce_again_at) WHERE completed_at IS NULL;

  CREATE TABLE deletion_purges (
    workspace_id TEXT NOT NULL,
    service TEXT NOT NULL,
    purged_at INTEGER,
    PRIMARY KEY (workspace_id, service)
  ) STRICT, WITHOUT ROWID;
  `,
];

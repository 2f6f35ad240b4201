import { type SqliteStoreOptions, serviceStoreOf } from "@sandgate/kit/storage/open-store";
import { openSqlite, type SqliteMigration } from "@sandgate/kit/storage/sqlite";
import { Role } from "@sandgate/proto/common/v1/access";
import { createAccounts } from "./accounts.sqlite.ts";
import { createDeletions } from "./deletions.sqlite.ts";
import { createMembers } from "./members.sqlite.ts";
import type { transactions } from "./store.sqlite.transactions.ts";
import type { WorkspaceStore } from "./store.ts";
import { createWorkspaces } from "./workspaces.sqlite.ts";

/** Times are epoch milliseconds; roles are the numbers of sandgate.common.v1.Role. */
export const migrations: readonly SqliteMigration[] = [
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
  "CREATE INDEX members_by_role ON members (user_id, role);",
  `
  -- When its workspace was created, so that an index gives a user's workspaces in their order.
  ALTER TABLE members ADD COLUMN workspace_created_at INTEGER NOT NULL DEFAULT 0;
  UPDATE members SET workspace_created_at = (SELECT created_at FROM workspaces WHERE id = workspace_id);
  CREATE INDEX members_newest ON members (user_id, workspace_created_at, workspace_id);
  DROP INDEX members_by_user;
  `,
  `
  ALTER TABLE workspaces ADD COLUMN charged_to TEXT;
  ALTER TABLE workspaces ADD COLUMN charged_since INTEGER NOT NULL DEFAULT 1;
  CREATE INDEX workspaces_by_charge ON workspaces (charged_to);
  `,
  {
    batches: `
      UPDATE workspaces SET charged_since = version, charged_to = (
        SELECT user_id FROM members m WHERE m.workspace_id = workspaces.id AND m.role = ${Role.OWNER} ORDER BY joined_at, user_id LIMIT 1
      )
      WHERE id IN (
        SELECT id FROM workspaces w WHERE charged_to IS NULL
          AND EXISTS (SELECT 1 FROM members m WHERE m.workspace_id = w.id AND m.role = ${Role.OWNER}) LIMIT 1000
      )`,
  },
  `
  CREATE INDEX members_of_user ON members (user_id, role, workspace_created_at, workspace_id);
  DROP INDEX members_newest;
  DROP INDEX members_by_role;
  `,
  `
  CREATE INDEX deletions_completed ON deletions (completed_at) WHERE completed_at IS NOT NULL;
  CREATE INDEX departed_users_by_time ON departed_users (departed_at);
  `,
  "CREATE INDEX deletions_oldest ON deletions (deleted_at) WHERE completed_at IS NULL;",
];

/** Opens the service's SQLite file, creating and migrating it as needed. */
export async function openSqliteStore(options: SqliteStoreOptions): Promise<WorkspaceStore> {
  const database = await openSqlite<typeof transactions>({
    ...options,
    migrations,
    transactions: new URL("./store.sqlite.transactions.ts", import.meta.url),
  });
  return {
    ...serviceStoreOf(database),
    workspaces: createWorkspaces(database),
    members: createMembers(database),
    accounts: createAccounts(database),
    deletions: createDeletions(database),
  };
}

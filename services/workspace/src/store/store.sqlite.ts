import { type SqliteStoreOptions, serviceStoreOf } from "@sandgate/kit/storage/open-store";
import { openSqlite, type SqliteMigration } from "@sandgate/kit/storage/sqlite";
import { Role } from "@sandgate/proto/common/v1/access";
import type { transactions } from "./store.sqlite.transactions.ts";
import type {
  DeletionRecord,
  MemberRecord,
  WorkspaceCharge,
  WorkspaceRecord,
  WorkspaceStore,
  WorkspaceView,
} from "./store.ts";

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
        SELECT user_id FROM members m WHERE m.workspace_id = workspaces.id AND m.role = 3 ORDER BY joined_at, user_id LIMIT 1
      )
      WHERE id IN (
        SELECT id FROM workspaces w WHERE charged_to IS NULL
          AND EXISTS (SELECT 1 FROM members m WHERE m.workspace_id = w.id AND m.role = 3) LIMIT 1000
      )`,
  },
];

type WorkspaceRow = {
  id: string;
  name: string;
  created_at: number;
  updated_at: number;
  version: number;
  role: Role | null;
};
type ChargeRow = { id: string; charged_to: string | null; charged_since: number; abandoned: 0 | 1 };
type MemberRow = { user_id: string; role: Role; joined_at: number };
type DeletionRow = {
  workspace_id: string;
  deleted_at: number;
  announcements: number;
  version: number;
};

const viewColumns = "w.id, w.name, w.created_at, w.updated_at, w.version, m.role";

function toView(row: WorkspaceRow): WorkspaceView {
  return {
    id: row.id,
    name: row.name,
    createdAt: new Date(row.created_at),
    updatedAt: new Date(row.updated_at),
    version: row.version,
    role: row.role ?? Role.UNSPECIFIED,
  };
}

function toMember(row: MemberRow): MemberRecord {
  return { userId: row.user_id, role: row.role, joinedAt: new Date(row.joined_at) };
}

function toDeletion(row: DeletionRow): DeletionRecord {
  return {
    workspaceId: row.workspace_id,
    deletedAt: new Date(row.deleted_at),
    announcements: row.announcements,
    version: row.version,
  };
}

function ownerOf(workspace: WorkspaceRecord, userId: string): MemberRecord {
  return { userId, role: Role.OWNER, joinedAt: workspace.createdAt };
}

/** Opens the service's SQLite file, creating and migrating it as needed. */
export async function openSqliteStore(options: SqliteStoreOptions): Promise<WorkspaceStore> {
  const database = await openSqlite<typeof transactions>({
    ...options,
    migrations,
    transactions: new URL("./store.sqlite.transactions.ts", import.meta.url),
  });
  const { read, write } = database;

  function findWorkspace(workspaceId: string, userId: string): WorkspaceView | undefined {
    const row = read.get<WorkspaceRow>(
      `SELECT ${viewColumns} FROM workspaces w
       LEFT JOIN members m ON m.workspace_id = w.id AND m.user_id = ? WHERE w.id = ?`,
      userId,
      workspaceId,
    );
    return row && toView(row);
  }

  function findCharges(workspaceIds: readonly string[]): WorkspaceCharge[] {
    const rows = read.all<ChargeRow>(
      `SELECT w.id, w.charged_to, w.charged_since, m.role IS NOT ? AS abandoned
       FROM json_each(?) asked JOIN workspaces w ON w.id = asked.value
       LEFT JOIN members m ON m.workspace_id = w.id AND m.user_id = w.charged_to`,
      Role.OWNER,
      JSON.stringify([...new Set(workspaceIds)]),
    );
    return rows.flatMap(({ id, charged_to, charged_since, abandoned }) =>
      charged_to === null
        ? []
        : [{ workspaceId: id, userId: charged_to, since: charged_since, abandoned: abandoned === 1 }],
    );
  }

  return {
    ...serviceStoreOf(database),
    createWorkspace: (workspace, ownerId, caps, events, record) =>
      write.createWorkspace(workspace, ownerOf(workspace, ownerId), caps, events, record),
    createPersonalWorkspace: (workspace, ownerId, events) =>
      write.createPersonalWorkspace(workspace, ownerOf(workspace, ownerId), events),
    renameWorkspace: write.renameWorkspace,
    deleteWorkspace: write.deleteWorkspace,
    addMember: write.addMember,
    changeRole: write.changeRole,
    removeMember: write.removeMember,
    markAccountDeleted: write.markAccountDeleted,
    recordPurge: write.recordPurge,
    announceDeletion: write.announceDeletion,

    async findWorkspace(workspaceId, userId) {
      return findWorkspace(workspaceId, userId);
    },

    async findMember(workspaceId, userId, actorId) {
      // The version is read first: if anything changes while the rest is read, the commit on this version fails.
      const workspace = findWorkspace(workspaceId, actorId);
      if (workspace === undefined) {
        return undefined;
      }
      const member = read.get<MemberRow>(
        "SELECT user_id, role, joined_at FROM members WHERE workspace_id = ? AND user_id = ?",
        workspaceId,
        userId,
      );
      const owners = read.get<{ owners: number }>(
        "SELECT count(*) AS owners FROM members WHERE workspace_id = ? AND role = ?",
        workspaceId,
        Role.OWNER,
      );
      const [charge] = findCharges([workspaceId]);
      return { workspace, member: member && toMember(member), owners: owners?.owners ?? 0, charge };
    },

    async findWorkspaces(workspaceIds, userId) {
      return read
        .all<WorkspaceRow>(
          `SELECT ${viewColumns} FROM json_each(?) asked JOIN workspaces w ON w.id = asked.value
           LEFT JOIN members m ON m.workspace_id = w.id AND m.user_id = ?`,
          JSON.stringify([...new Set(workspaceIds)]),
          userId,
        )
        .map(toView);
    },

    async findCharges(workspaceIds) {
      return findCharges(workspaceIds);
    },

    // No other version has written to this file since its migration.
    async chargeFirstOwners() {},

    async listWorkspaces(userId, after, limit) {
      return read
        .all<WorkspaceRow>(
          `SELECT ${viewColumns} FROM members m JOIN workspaces w ON w.id = m.workspace_id
           WHERE m.user_id = ? AND (m.workspace_created_at, m.workspace_id) < (?, ?)
           ORDER BY m.workspace_created_at DESC, m.workspace_id DESC LIMIT ?`,
          userId,
          after?.createdAt ?? Number.MAX_SAFE_INTEGER,
          after?.id ?? "",
          limit,
        )
        .map(toView);
    },

    async listMembers(workspaceId, after, limit) {
      return read
        .all<MemberRow>(
          `SELECT user_id, role, joined_at FROM members
           WHERE workspace_id = ? AND (joined_at, user_id) < (?, ?)
           ORDER BY joined_at DESC, user_id DESC LIMIT ?`,
          workspaceId,
          after?.createdAt ?? Number.MAX_SAFE_INTEGER,
          after?.id ?? "",
          limit,
        )
        .map(toMember);
    },

    async hadPersonalWorkspace(userId) {
      return read.get("SELECT 1 FROM personal_workspaces WHERE user_id = ?", userId) !== undefined;
    },

    async listDueDeletions(now, limit) {
      return read
        .all<DeletionRow>(
          `SELECT workspace_id, deleted_at, announcements, version FROM deletions
           WHERE completed_at IS NULL AND announce_again_at <= ? ORDER BY announce_again_at LIMIT ?`,
          now,
          limit,
        )
        .map(toDeletion);
    },

    async oldestOpenDeletion() {
      const row = read.get<{ oldest: number | null }>(
        "SELECT min(deleted_at) AS oldest FROM deletions WHERE completed_at IS NULL",
      );
      return row?.oldest == null ? undefined : new Date(row.oldest);
    },
  };
}

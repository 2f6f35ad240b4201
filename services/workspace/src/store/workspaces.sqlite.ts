import type { SqliteDatabase } from "@sandgate/kit/storage/sqlite";
import { Role } from "@sandgate/proto/common/v1/access";
import type { WorkspaceView } from "../domain/workspaces.ts";
import type { workspaceTransactions } from "./workspaces.sqlite.transactions.ts";
import type { Workspaces } from "./workspaces.ts";

export type WorkspaceRow = {
  id: string;
  name: string;
  created_at: number;
  updated_at: number;
  version: number;
  role: Role | null;
};
type QuotaOwnerRow = { id: string; charged_to: string; charged_since: number; abandoned: 0 | 1 };

/** Columns of the workspace `w` and the member `m`. */
export const viewColumns = "w.id, w.name, w.created_at, w.updated_at, w.version, m.role";

export function toView({ id, name, created_at, updated_at, version, role }: WorkspaceRow): WorkspaceView {
  return {
    id,
    name,
    createdAt: new Date(created_at),
    updatedAt: new Date(updated_at),
    version,
    role: role ?? Role.UNSPECIFIED,
  };
}

export function createWorkspaces({ read, write }: SqliteDatabase<typeof workspaceTransactions>): Workspaces {
  return {
    create: write.createWorkspace,
    createPersonal: write.createPersonalWorkspace,
    rename: write.renameWorkspace,
    delete: write.deleteWorkspace,

    async find(workspaceId, userId) {
      const row = read.get<WorkspaceRow>(
        `SELECT ${viewColumns} FROM workspaces w
         LEFT JOIN members m ON m.workspace_id = w.id AND m.user_id = ? WHERE w.id = ?`,
        userId,
        workspaceId,
      );
      return row && toView(row);
    },

    async findMany(workspaceIds, userId) {
      return read
        .all<WorkspaceRow>(
          `SELECT ${viewColumns} FROM json_each(?) asked JOIN workspaces w ON w.id = asked.value
           LEFT JOIN members m ON m.workspace_id = w.id AND m.user_id = ?`,
          JSON.stringify([...new Set(workspaceIds)]),
          userId,
        )
        .map(toView);
    },

    async findQuotaOwners(workspaceIds) {
      return read
        .all<QuotaOwnerRow>(
          `SELECT w.id, w.charged_to, w.charged_since, m.role IS NOT ? AS abandoned
           FROM json_each(?) asked JOIN workspaces w ON w.id = asked.value
           LEFT JOIN members m ON m.workspace_id = w.id AND m.user_id = w.charged_to`,
          Role.OWNER,
          JSON.stringify([...new Set(workspaceIds)]),
        )
        .map(({ id, charged_to, charged_since, abandoned }) => ({
          workspaceId: id,
          userId: charged_to,
          since: charged_since,
          abandoned: abandoned === 1,
        }));
    },

    async list(userId, after, limit) {
      return read
        .all<WorkspaceRow>(
          `SELECT ${viewColumns} FROM members m JOIN workspaces w ON w.id = m.workspace_id
           WHERE m.user_id = ? AND (m.role, m.workspace_created_at, m.workspace_id) < (?, ?, ?)
           ORDER BY m.role DESC, m.workspace_created_at DESC, m.workspace_id DESC LIMIT ?`,
          userId,
          after?.role ?? Role.OWNER,
          after?.createdAt ?? Number.MAX_SAFE_INTEGER,
          after?.id ?? "",
          limit,
        )
        .map(toView);
    },

    async findDefault(userId) {
      const row = read.get<{ id: string }>(
        `SELECT w.id FROM members m JOIN workspaces w ON w.id = m.workspace_id
         WHERE m.user_id = ? AND m.role = ? AND w.charged_to = m.user_id
         ORDER BY m.workspace_created_at, m.workspace_id LIMIT 1`,
        userId,
        Role.OWNER,
      );
      return row?.id;
    },
  };
}

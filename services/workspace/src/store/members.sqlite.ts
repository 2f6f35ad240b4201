import type { SqliteDatabase } from "@sandgate/kit/storage/sqlite";
import { Role } from "@sandgate/proto/common/v1/access";
import type { MemberRecord } from "../domain/members.ts";
import type { memberTransactions } from "./members.sqlite.transactions.ts";
import type { Members } from "./members.ts";
import { toView, viewColumns, type WorkspaceRow } from "./workspaces.sqlite.ts";

type MemberRow = { user_id: string; role: Role; joined_at: number };
type MemberViewRow = WorkspaceRow & { charged_to: string; charged_since: number; owners: number };

function toMember({ user_id, role, joined_at }: MemberRow): MemberRecord {
  return { userId: user_id, role, joinedAt: new Date(joined_at) };
}

export function createMembers({ read, write }: SqliteDatabase<typeof memberTransactions>): Members {
  return {
    add: write.addMember,
    changeRole: write.changeRole,
    remove: write.removeMember,

    async find(workspaceId, userId, actorId) {
      // The version is read first: if anything changes while the rest is read, the commit on this version fails.
      const row = read.get<MemberViewRow>(
        `SELECT ${viewColumns}, w.charged_to, w.charged_since,
           (SELECT count(*) FROM members o WHERE o.workspace_id = w.id AND o.role = ?) AS owners
         FROM workspaces w LEFT JOIN members m ON m.workspace_id = w.id AND m.user_id = ? WHERE w.id = ?`,
        Role.OWNER,
        actorId,
        workspaceId,
      );
      if (!row) return undefined;
      const member = read.get<MemberRow>(
        "SELECT user_id, role, joined_at FROM members WHERE workspace_id = ? AND user_id = ?",
        workspaceId,
        userId,
      );
      return {
        workspace: toView(row),
        member: member && toMember(member),
        owners: row.owners,
        quotaOwner: { userId: row.charged_to, since: row.charged_since },
      };
    },

    async list(workspaceId, after, limit) {
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
  };
}

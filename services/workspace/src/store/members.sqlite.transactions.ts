import type { Transaction, TransactionOf } from "@sandgate/kit/storage/sqlite";
import { decideTakeOver, type OwnsTooMany } from "../domain/accounts.ts";
import { decideAddMember } from "../domain/members.ts";
import { readAccount } from "./accounts.sqlite.transactions.ts";
import type { MemberChange, Members } from "./members.ts";
import { changeWorkspace, insertMember } from "./workspaces.sqlite.transactions.ts";
import type { ChangeOutcome } from "./workspaces.ts";

function changeMember(tx: Transaction, change: MemberChange, apply: () => void): ChangeOutcome | OwnsTooMany {
  const { workspaceId, takeOver } = change;
  if (!takeOver) return changeWorkspace(tx, change, apply);
  const { userId, quotas } = takeOver;
  const outcome = decideTakeOver(readAccount(tx, userId, quotas.maxOwned), quotas);
  if (outcome !== "done") return outcome;
  return changeWorkspace(tx, change, () => {
    tx.db.run("UPDATE workspaces SET charged_to = ?, charged_since = version WHERE id = ?", userId, workspaceId);
    apply();
  });
}

export const memberTransactions = {
  addMember(tx, change, member, quotas, record) {
    const { workspaceId } = change;
    const sql = "SELECT 1 FROM members WHERE workspace_id = ? LIMIT ?";
    const members = tx.db.all(sql, workspaceId, quotas.maxMembers).length;
    const outcome = decideAddMember({ account: readAccount(tx, member.userId), members }, quotas);
    if (outcome !== "done") return outcome;
    return changeWorkspace(tx, change, () => {
      tx.keepIdempotencyRecord(record);
      insertMember(tx, workspaceId, member);
    });
  },

  changeRole(tx, change, userId, role) {
    const sql = "UPDATE members SET role = ? WHERE workspace_id = ? AND user_id = ?";
    return changeMember(tx, change, () => tx.db.run(sql, role, change.workspaceId, userId));
  },

  removeMember(tx, change, userId) {
    const sql = "DELETE FROM members WHERE workspace_id = ? AND user_id = ?";
    return changeMember(tx, change, () => tx.db.run(sql, change.workspaceId, userId));
  },
} satisfies {
  addMember: TransactionOf<Members["add"]>;
  changeRole: TransactionOf<Members["changeRole"]>;
  removeMember: TransactionOf<Members["remove"]>;
};

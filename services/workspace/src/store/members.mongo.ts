import { afterPosition, type MongoDatabase, type MongoTransaction } from "@sandgate/kit/storage/mongo";
import { Role } from "@sandgate/proto/common/v1/access";
import { decideTakeOver, type OwnsTooMany } from "../domain/accounts.ts";
import { decideAddMember, type MemberRecord } from "../domain/members.ts";
import { lockAccount } from "./accounts.mongo.ts";
import { collectionsOf, type MemberDocument } from "./collections.mongo.ts";
import type { MemberChange, Members } from "./members.ts";
import { changeWorkspace, toView } from "./workspaces.mongo.ts";
import type { ChangeOutcome } from "./workspaces.ts";

function toMember({ userId, role, joinedAt }: MemberDocument): MemberRecord {
  return { userId, role, joinedAt };
}

export function createMembers({ db, write }: MongoDatabase): Members {
  const collections = collectionsOf(db);
  const { workspaces, members } = collections;

  const changeMember = (
    change: MemberChange,
    apply: (tx: MongoTransaction) => Promise<unknown>,
  ): Promise<ChangeOutcome | OwnsTooMany> =>
    write(async (tx) => {
      const { version, takeOver } = change;
      if (!takeOver) return changeWorkspace(collections, tx, change, {}, () => apply(tx));
      const { userId, quotas } = takeOver;
      const outcome = decideTakeOver(await lockAccount(collections, tx, userId, quotas.maxOwned), quotas);
      if (outcome !== "done") return outcome;
      const quotaOwner = { chargedTo: userId, chargedSince: version + 1 };
      return changeWorkspace(collections, tx, change, quotaOwner, () => apply(tx));
    });

  return {
    async find(workspaceId, userId, actorId) {
      // The version is read first: if anything changes while the rest is read, the commit on this version fails.
      const workspace = await workspaces.findOne({ _id: workspaceId });
      if (!workspace) return undefined;
      const [actor, member, owners] = await Promise.all([
        members.findOne({ workspaceId, userId: actorId }),
        members.findOne({ workspaceId, userId }),
        members.countDocuments({ workspaceId, role: Role.OWNER }),
      ]);
      return {
        workspace: toView(workspace, actor?.role),
        member: member ? toMember(member) : undefined,
        owners,
        quotaOwner: { userId: workspace.chargedTo, since: workspace.chargedSince },
      };
    },

    async list(workspaceId, after, limit) {
      const last = after && { joinedAt: after.createdAt, userId: after.id };
      const found = await members
        .find({ workspaceId, ...afterPosition<MemberDocument>(last) })
        .sort({ joinedAt: -1, userId: -1 })
        .limit(limit)
        .toArray();
      return found.map(toMember);
    },

    add: (change, { userId, role, joinedAt }, quotas, record) =>
      write(async (tx) => {
        const { workspaceId } = change;
        const { session } = tx;
        const { maxMembers } = quotas;
        const account = await lockAccount(collections, tx, userId);
        // Exact, since every change of a member writes the workspace too.
        const counted = maxMembers && (await members.countDocuments({ workspaceId }, { session, limit: maxMembers }));
        const outcome = decideAddMember({ account, members: counted }, quotas);
        if (outcome !== "done") return outcome;
        return changeWorkspace(collections, tx, change, {}, async ({ createdAt }) => {
          await tx.keepIdempotencyRecord(record);
          const member = { workspaceId, userId, role, joinedAt, workspaceCreatedAt: createdAt };
          await members.insertOne(member, { session });
        });
      }),

    changeRole: (change, userId, role) =>
      changeMember(change, ({ session }) =>
        members.updateOne({ workspaceId: change.workspaceId, userId }, { $set: { role } }, { session }),
      ),

    remove: (change, userId) =>
      changeMember(change, ({ session }) =>
        members.deleteOne({ workspaceId: change.workspaceId, userId }, { session }),
      ),
  };
}

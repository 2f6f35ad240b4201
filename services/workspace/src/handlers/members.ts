import { create } from "@bufbuild/protobuf";
import type { ServiceImpl } from "@connectrpc/connect";
import { readPageBy } from "@sandgate/kit/base/page";
import type { ServiceContext } from "@sandgate/kit/process/service";
import { requireRoleFor } from "@sandgate/kit/rpc/access";
import { callOf, userOf } from "@sandgate/kit/rpc/context";
import { createRunIdempotent } from "@sandgate/kit/rpc/idempotency";
import { Role } from "@sandgate/proto/common/v1/access";
import { AddMemberResponseSchema, WorkspaceService } from "@sandgate/proto/workspace/v1/workspace";
import { checkMayAdd, type MemberRecord } from "../domain/members.ts";
import { toMember } from "../messages.ts";
import type { WorkspaceSettings } from "../settings.ts";
import type { WorkspaceStore } from "../store/store.ts";
import { addMember, changeRole, removeMember } from "../usecases/members.ts";
import { createUsers } from "../usecases/users.ts";
import { findWorkspace } from "../usecases/workspaces.ts";

const { method } = WorkspaceService;
/** Of one answer. */
const maxMemberIds = 200;

/** Answers the calls about members of a workspace. */
export function createMemberHandlers(o: ServiceContext<WorkspaceSettings, WorkspaceStore>) {
  const { store, transport } = o;
  const runIdempotent = createRunIdempotent(o);
  const users = createUsers(transport("identity"));
  return {
    async addMember(request, context) {
      const call = callOf(context);
      return runIdempotent(call, method.addMember, request, async (recordFor) => {
        const { username, role } = request;
        checkMayAdd((await findWorkspace(store, call)).role, role);
        const user = await users.findVerified(call, username);
        const member: MemberRecord = { userId: user.id, role, joinedAt: new Date() };
        const response = create(AddMemberResponseSchema, { member: toMember(member, user.username) });
        await addMember(o, call, member, await recordFor(response));
        return response;
      });
    },

    async listMembers({ page }, context) {
      const call = callOf(context);
      const { id, role } = await findWorkspace(store, call);
      requireRoleFor(method.listMembers, role);
      const cursorOf = ({ joinedAt, userId }: MemberRecord) => ({ createdAt: joinedAt, id: userId });
      const { rows, nextCursor } = await readPageBy(cursorOf, page, (limit, after) =>
        store.members.list(id, after, limit),
      );
      const usernames = await users.findUsernames(
        call,
        rows.map(({ userId }) => userId),
      );
      // A deleted user leaves the workspace as soon as the event of the deletion arrives.
      const members = rows.flatMap((member) => {
        const username = usernames.get(member.userId);
        return username === undefined ? [] : [toMember(member, username)];
      });
      return { members, nextCursor };
    },

    async updateMember({ userId, role }, context) {
      const call = callOf(context);
      const changed = await changeRole(o, call, userId, role);
      const usernames = await users.findUsernames(call, [userId]);
      return { member: toMember(changed, usernames.get(userId) ?? "") };
    },

    async removeMember({ userId }, context) {
      await removeMember(o, callOf(context), userId);
      return {};
    },

    async getMembership({ workspaceId, userId }) {
      const workspace = await store.workspaces.find(workspaceId, userId);
      return { workspaceExists: workspace !== undefined, role: workspace?.role ?? Role.UNSPECIFIED };
    },

    async listMemberIds({ workspaceId }) {
      const members = await store.members.list(workspaceId, undefined, maxMemberIds);
      return { userIds: members.map(({ userId }) => userId) };
    },

    async takeOverWorkspace(_request, context) {
      const call = callOf(context);
      await changeRole(o, call, userOf(call).id, Role.OWNER);
      return {};
    },
  } satisfies Partial<ServiceImpl<typeof WorkspaceService>>;
}

import { create } from "@bufbuild/protobuf";
import { timestampFromDate } from "@bufbuild/protobuf/wkt";
import { createClient, type ServiceImpl } from "@connectrpc/connect";
import { stateOf } from "@sandgate/kit/base/dependencies";
import { DomainError } from "@sandgate/kit/base/domain-error";
import { newId } from "@sandgate/kit/base/ids";
import { decodeCursor, pageLimit, toPage } from "@sandgate/kit/base/page";
import { defineService, type ServiceContext } from "@sandgate/kit/process/service";
import { type Call, callOf, onBehalfOf, userOf, workspaceOf } from "@sandgate/kit/rpc/context";
import { runIdempotent } from "@sandgate/kit/rpc/idempotency";
import { Role } from "@sandgate/proto/common/v1/access";
import { IdentityService } from "@sandgate/proto/identity/v1/identity";
import {
  AddMemberResponseSchema,
  CreateWorkspaceResponseSchema,
  type Member,
  MemberSchema,
  type Workspace,
  WorkspaceSchema,
  WorkspaceService,
} from "@sandgate/proto/workspace/v1/workspace";
import { consumeEvents } from "./consumers.ts";
import { deleteWorkspace, startDeletions } from "./domain/deletions.ts";
import { checkAdd, checkMayAdd, checkRemoval, checkRoleChange, type Standing } from "./domain/members.ts";
import { commit } from "./domain/retry-stale.ts";
import { requireRole } from "./domain/roles.ts";
import { memberAdded, memberRemoved, signalMembership, workspaceCreated } from "./events.ts";
import type { MemberRecord, MemberView, WorkspaceRecord, WorkspaceStore, WorkspaceView } from "./store/store.ts";

type Context = ServiceContext<unknown, WorkspaceStore>;

/** The service that owns workspaces, their members and roles. It has no settings of its own. */
export const workspaceService = defineService({
  name: "workspace",
  settings: {},
  stores: { sqlite: () => import("./store/store.sqlite.ts"), mongodb: () => import("./store/store.mongo.ts") },
  open(context) {
    const { store, bus, logger, metrics } = context;
    return {
      routes(router) {
        router.service(WorkspaceService, createHandlers(context));
      },
      async start() {
        return [await consumeEvents({ bus, store }), startDeletions({ store, logger, metrics })];
      },
      async dependencies() {
        return { database: await stateOf(store.oldestOpenDeletion()) };
      },
    };
  },
});

function createHandlers({
  store,
  bus,
  keyring,
  transport,
}: Context): Omit<ServiceImpl<typeof WorkspaceService>, "getDeletion"> {
  const identity = createClient(IdentityService, transport("identity"));

  /** The workspace of the call as its user sees it now. */
  async function viewOf(call: Call): Promise<WorkspaceView> {
    return found(await store.findWorkspace(workspaceOf(call), userOf(call).id));
  }

  async function memberViewOf(call: Call, userId: string): Promise<MemberView> {
    return found(await store.findMember(workspaceOf(call), userId, userOf(call).id));
  }

  /** User names by id; deleted users are missing. */
  async function usernames(call: Call, userIds: readonly string[]): Promise<Map<string, string>> {
    const { users } = await identity.batchGetUsers({ userIds: [...userIds] }, onBehalfOf(call));
    return new Map(users.map((user) => [user.id, user.username]));
  }

  async function makePersonalWorkspace(call: Call): Promise<void> {
    const userId = userOf(call).id;
    if (await store.hadPersonalWorkspace(userId)) return;
    const workspace = newWorkspace("Personal");
    await store.createPersonalWorkspace(workspace, userId, [workspaceCreated(call, workspace, userId)]);
  }

  return {
    async createWorkspace(request, context) {
      const call = callOf(context);
      const userId = userOf(call).id;
      return runIdempotent({
        call,
        method: WorkspaceService.method.createWorkspace,
        request,
        keyring,
        store,
        async work(recordFor) {
          const workspace = newWorkspace(request.name);
          const response = create(CreateWorkspaceResponseSchema, {
            workspace: toWorkspace({ ...workspace, role: Role.OWNER }),
          });
          const events = [workspaceCreated(call, workspace, userId)];
          const outcome = await store.createWorkspace(workspace, userId, events, await recordFor(response));
          if (outcome === "departed") throw new DomainError("INVALID_TOKEN", "This account has been deleted.");
          return response;
        },
      });
    },

    async listWorkspaces(request, context) {
      const call = callOf(context);
      const after = decodeCursor(request.page?.cursor ?? "");
      const limit = pageLimit(request.page?.limit);
      await makePersonalWorkspace(call);
      const read = await store.listWorkspaces(userOf(call).id, after, limit + 1);
      const { rows, nextCursor } = toPage(read, limit, ({ createdAt, id }) => ({ createdAt: createdAt.getTime(), id }));
      return { workspaces: rows.map(toWorkspace), nextCursor };
    },

    async getWorkspace(_request, context) {
      const workspace = await viewOf(callOf(context));
      requireRole(workspace.role, Role.MEMBER);
      return { workspace: toWorkspace(workspace) };
    },

    async updateWorkspace({ name }, context) {
      const call = callOf(context);
      return commit(async () => {
        const workspace = await viewOf(call);
        requireRole(workspace.role, Role.ADMIN);
        const updatedAt = new Date();
        const outcome = await store.renameWorkspace(workspace.id, workspace.version, name, updatedAt);
        return { outcome, value: { workspace: toWorkspace({ ...workspace, name, updatedAt }) } };
      });
    },

    async deleteWorkspace(_request, context) {
      const call = callOf(context);
      return commit(async () => {
        const workspace = await viewOf(call);
        requireRole(workspace.role, Role.OWNER);
        return { outcome: await deleteWorkspace({ store, bus }, workspace, call), value: {} };
      });
    },

    async addMember(request, context) {
      const call = callOf(context);
      return runIdempotent({
        call,
        method: WorkspaceService.method.addMember,
        request,
        keyring,
        store,
        async work(recordFor) {
          // Who may not add anybody is told so before whether there is such a user.
          checkMayAdd((await viewOf(call)).role, request.role);
          const { users } = await identity.batchGetUsers({ usernames: [request.username] }, onBehalfOf(call));
          const user = users.find(({ verified }) => verified);
          if (user === undefined) {
            throw new DomainError("MEMBER_NOT_FOUND", "There is no verified user of this name.", {
              hint: "Ask them to register and to follow the link in the verification mail first.",
            });
          }
          return commit(async () => {
            const view = await memberViewOf(call, user.id);
            checkAdd(standingIn(view), request.role);
            const { id, version } = view.workspace;
            const member: MemberRecord = { userId: user.id, role: request.role, joinedAt: new Date() };
            const response = create(AddMemberResponseSchema, { member: toMember(member, user.username) });
            const events = [memberAdded(call, id, version + 1, member)];
            const outcome = await store.addMember(id, version, member, events, await recordFor(response));
            if (outcome === "done") signalMembership(bus, id, user.id);
            return { outcome, value: response };
          });
        },
      });
    },

    async listMembers(request, context) {
      const call = callOf(context);
      const after = decodeCursor(request.page?.cursor ?? "");
      const limit = pageLimit(request.page?.limit);
      const { id, role } = await viewOf(call);
      requireRole(role, Role.MEMBER);
      const { rows, nextCursor } = toPage(await store.listMembers(id, after, limit + 1), limit, (member) => ({
        createdAt: member.joinedAt.getTime(),
        id: member.userId,
      }));
      const names = await usernames(
        call,
        rows.map(({ userId }) => userId),
      );
      // Who has been deleted leaves the workspace as soon as that event arrives.
      const members = rows.flatMap((member) => {
        const name = names.get(member.userId);
        return name === undefined ? [] : [toMember(member, name)];
      });
      return { members, nextCursor };
    },

    async updateMember({ userId, role }, context) {
      const call = callOf(context);
      const changed = await commit(async () => {
        const view = await memberViewOf(call, userId);
        checkRoleChange(standingIn(view), role);
        const { id, version } = view.workspace;
        const outcome = await store.changeRole(id, version, userId, role);
        if (outcome === "done") signalMembership(bus, id, userId);
        return { outcome, value: { userId, role, joinedAt: view.member?.joinedAt ?? new Date() } };
      });
      const names = await usernames(call, [userId]);
      return { member: toMember(changed, names.get(userId) ?? "") };
    },

    async removeMember({ userId }, context) {
      const call = callOf(context);
      return commit(async () => {
        const view = await memberViewOf(call, userId);
        checkRemoval(standingIn(view), userId === userOf(call).id);
        const { id, version } = view.workspace;
        const outcome = await store.removeMember(id, version, userId, [memberRemoved(call, id, version + 1, userId)]);
        if (outcome === "done") signalMembership(bus, id, userId);
        return { outcome, value: {} };
      });
    },

    async getMembership({ workspaceId, userId }) {
      const workspace = await store.findWorkspace(workspaceId, userId);
      return { workspaceExists: workspace !== undefined, role: workspace?.role ?? Role.UNSPECIFIED };
    },

    async batchGetWorkspaces({ workspaceIds }, context) {
      const workspaces = await store.findWorkspaces(workspaceIds, callOf(context).user?.id ?? "");
      return { workspaces: workspaces.map(toWorkspace) };
    },
  };
}

function newWorkspace(name: string): WorkspaceRecord {
  const now = new Date();
  return { id: newId(), name, createdAt: now, updatedAt: now, version: 1 };
}

function found<T>(view: T | undefined): T {
  if (view === undefined) throw new DomainError("WORKSPACE_NOT_FOUND", "There is no such workspace.");
  return view;
}

function standingIn({ workspace, member, owners }: MemberView): Standing {
  return { actor: workspace.role, target: member?.role ?? Role.UNSPECIFIED, owners };
}

function toWorkspace({ id, name, role, createdAt, updatedAt }: WorkspaceView): Workspace {
  return create(WorkspaceSchema, {
    id,
    name,
    role,
    createdAt: timestampFromDate(createdAt),
    updatedAt: timestampFromDate(updatedAt),
  });
}

function toMember({ userId, role, joinedAt }: MemberRecord, username: string): Member {
  return create(MemberSchema, { userId, username, role, joinedAt: timestampFromDate(joinedAt) });
}

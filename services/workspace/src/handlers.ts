import { create } from "@bufbuild/protobuf";
import { createClient, type ServiceImpl } from "@connectrpc/connect";
import { DomainError } from "@sandgate/kit/base/domain-error";
import { newId } from "@sandgate/kit/base/ids";
import { readPage, readPageBy } from "@sandgate/kit/base/page";
import type { ServiceContext } from "@sandgate/kit/process/service";
import { limitRole, requireLimitedRole, requireRoleFor } from "@sandgate/kit/rpc/access";
import { type Call, callOf, onBehalfOf, type UserCaller, userOf, workspaceOf } from "@sandgate/kit/rpc/context";
import { runIdempotent } from "@sandgate/kit/rpc/idempotency";
import { retryWhileStale } from "@sandgate/kit/storage/optimistic";
import { Role } from "@sandgate/proto/common/v1/access";
import { IdentityService } from "@sandgate/proto/identity/v1/identity";
import {
  AddMemberResponseSchema,
  CreateWorkspaceResponseSchema,
  WorkspaceService,
} from "@sandgate/proto/workspace/v1/workspace";
import { ownsTooMany, tooManyMembers } from "./domain/caps.ts";
import { takesOver } from "./domain/charges.ts";
import { requireNoSharedWorkspaceOf } from "./domain/deleted-accounts.ts";
import { deleteWorkspace } from "./domain/deletions.ts";
import {
  checkAdd,
  checkMayAdd,
  checkRemoval,
  checkRoleChange,
  type MembershipState,
  memberNotFound,
} from "./domain/members.ts";
import {
  memberAdded,
  memberRemoved,
  memberUpdated,
  signalMembership,
  workspaceCreated,
  workspaceTakenOver,
  workspaceUpdated,
} from "./events.ts";
import { toCharge, toMember, toWorkspace } from "./messages.ts";
import type { WorkspaceSettings } from "./settings.ts";
import type {
  MemberRecord,
  MemberView,
  TakeOver,
  WorkspaceRecord,
  WorkspaceStore,
  WorkspaceView,
} from "./store/store.ts";

const { method } = WorkspaceService;

/** Answers the service's calls. */
export function createHandlers({
  store,
  bus,
  keyring,
  transport,
  settings: caps,
}: ServiceContext<WorkspaceSettings, WorkspaceStore>): Omit<ServiceImpl<typeof WorkspaceService>, "getDeletion"> {
  const identity = createClient(IdentityService, transport("identity"));

  /** The call's workspace as its user's credential sees it now. */
  async function findWorkspace(call: Call): Promise<WorkspaceView> {
    const user = userOf(call);
    return withinLimit(user, found(await store.findWorkspace(workspaceOf(call), user.id)));
  }

  async function findMember(call: Call, userId: string): Promise<MemberView> {
    const user = userOf(call);
    const view = found(await store.findMember(workspaceOf(call), userId, user.id));
    return { ...view, workspace: withinLimit(user, view.workspace) };
  }

  /** User names by id; deleted users are missing. */
  async function findUsernames(call: Call, userIds: string[]): Promise<Map<string, string>> {
    const { users } = await identity.batchGetUsers({ userIds }, onBehalfOf(call));
    return new Map(users.map((user) => [user.id, user.username]));
  }

  /** Throws MEMBER_NOT_FOUND. Ask only for a caller who may add members: others must not learn who is registered. */
  async function findVerifiedUser(call: Call, username: string) {
    const { users } = await identity.batchGetUsers({ usernames: [username] }, onBehalfOf(call));
    const user = users.find(({ verified }) => verified);
    if (user === undefined) {
      throw new DomainError("MEMBER_NOT_FOUND", "There is no verified user with this name.", {
        hint: "Ask them to register first, and to follow the link in the verification mail.",
      });
    }
    return user;
  }

  async function ensurePersonalWorkspace(call: Call): Promise<void> {
    const userId = userOf(call).id;
    if (await store.hadPersonalWorkspace(userId)) return;
    const workspace = newWorkspace("Personal");
    await store.createPersonalWorkspace(workspace, userId, [workspaceCreated(call, workspace, userId)]);
  }

  /** How the call's user takes the workspace over by giving this role to a member; undefined when they don't. */
  function takeOverBy(call: Call, view: MemberView, targetId: string, role: Role): TakeOver | undefined {
    const { workspace, charge } = view;
    const { id: userId } = userOf(call);
    const { actor, target } = membershipStateOf(view);
    if (!takesOver({ charge, actor: { id: userId, role: actor }, target: { id: targetId, role: target }, role })) {
      return undefined;
    }
    return { userId, caps, event: workspaceTakenOver(call, workspace.id, workspace.version + 1, userId) };
  }

  async function changeRole(call: Call, userId: string, role: Role): Promise<MemberRecord> {
    return retryWhileStale(async () => {
      const view = await findMember(call, userId);
      checkRoleChange(membershipStateOf(view), role);
      if (!view.member) throw memberNotFound();
      const { id, version } = view.workspace;
      const changed = memberUpdated(call, id, version + 1, { userId, role });
      const events = view.member.role === role ? [] : [changed];
      const outcome = await store.changeRole(id, version, userId, role, events, takeOverBy(call, view, userId, role));
      if (outcome === "stale") return outcome;
      if (outcome === "owns_too_many") throw ownsTooMany(caps);
      signalMembership(bus, id, userId);
      return { ...view.member, role };
    });
  }

  return {
    async createWorkspace(request, context) {
      const call = callOf(context);
      const user = userOf(call);
      const userId = user.id;
      // Whoever creates a workspace owns it.
      requireLimitedRole(Role.OWNER, user, Role.OWNER);
      return runIdempotent({
        call,
        method: method.createWorkspace,
        request,
        keyring,
        store,
        async work(recordFor) {
          const workspace = newWorkspace(request.name);
          const response = create(CreateWorkspaceResponseSchema, {
            workspace: toWorkspace({ ...workspace, role: Role.OWNER }),
          });
          const events = [workspaceCreated(call, workspace, userId)];
          const outcome = await store.createWorkspace(workspace, userId, caps, events, await recordFor(response));
          if (outcome === "account_deleted") throw new DomainError("INVALID_TOKEN", "This account has been deleted.");
          if (outcome === "owns_too_many") throw ownsTooMany(caps);
          return response;
        },
      });
    },

    async listWorkspaces({ page }, context) {
      const call = callOf(context);
      const user = userOf(call);
      await ensurePersonalWorkspace(call);
      const { rows, nextCursor } = await readPage(page, (limit, after) => store.listWorkspaces(user.id, after, limit));
      return { workspaces: rows.map((row) => toWorkspace(withinLimit(user, row))), nextCursor };
    },

    async getWorkspace(_request, context) {
      const workspace = await findWorkspace(callOf(context));
      requireRoleFor(method.getWorkspace, workspace.role);
      return { workspace: toWorkspace(workspace) };
    },

    async updateWorkspace({ name }, context) {
      const call = callOf(context);
      return retryWhileStale(async () => {
        const workspace = await findWorkspace(call);
        requireRoleFor(method.updateWorkspace, workspace.role);
        const updatedAt = new Date();
        const { id, version } = workspace;
        const events = [workspaceUpdated(call, id, version + 1)];
        const outcome = await store.renameWorkspace(id, version, name, updatedAt, events);
        return outcome === "done" ? { workspace: toWorkspace({ ...workspace, name, updatedAt }) } : outcome;
      });
    },

    async deleteWorkspace(_request, context) {
      const call = callOf(context);
      return retryWhileStale(async () => {
        const workspace = await findWorkspace(call);
        requireRoleFor(method.deleteWorkspace, workspace.role);
        const outcome = await deleteWorkspace({ store, bus }, workspace, call);
        return outcome === "done" ? {} : outcome;
      });
    },

    async addMember(request, context) {
      const call = callOf(context);
      return runIdempotent({
        call,
        method: method.addMember,
        request,
        keyring,
        store,
        async work(recordFor) {
          checkMayAdd((await findWorkspace(call)).role, request.role);
          const user = await findVerifiedUser(call, request.username);
          return retryWhileStale(async () => {
            const view = await findMember(call, user.id);
            checkAdd(membershipStateOf(view), request.role);
            const { id, version } = view.workspace;
            const member: MemberRecord = { userId: user.id, role: request.role, joinedAt: new Date() };
            const response = create(AddMemberResponseSchema, { member: toMember(member, user.username) });
            const events = [memberAdded(call, id, version + 1, member)];
            const outcome = await store.addMember(id, version, member, caps, events, await recordFor(response));
            if (outcome === "stale") return outcome;
            if (outcome === "account_deleted") {
              throw new DomainError("MEMBER_NOT_FOUND", "This user's account has been deleted.");
            }
            if (outcome === "too_many_members") throw tooManyMembers(caps);
            signalMembership(bus, id, user.id);
            return response;
          });
        },
      });
    },

    async listMembers({ page }, context) {
      const call = callOf(context);
      const { id, role } = await findWorkspace(call);
      requireRoleFor(method.listMembers, role);
      const cursorOf = ({ joinedAt, userId }: MemberRecord) => ({ createdAt: joinedAt, id: userId });
      const { rows, nextCursor } = await readPageBy(cursorOf, page, (limit, after) =>
        store.listMembers(id, after, limit),
      );
      const userIds = rows.map(({ userId }) => userId);
      const usernames = await findUsernames(call, userIds);
      // A deleted user leaves the workspace as soon as the event of the deletion arrives.
      const members = rows.flatMap((member) => {
        const username = usernames.get(member.userId);
        return username === undefined ? [] : [toMember(member, username)];
      });
      return { members, nextCursor };
    },

    async updateMember({ userId, role }, context) {
      const call = callOf(context);
      const changed = await changeRole(call, userId, role);
      const usernames = await findUsernames(call, [userId]);
      return { member: toMember(changed, usernames.get(userId) ?? "") };
    },

    async removeMember({ userId }, context) {
      const call = callOf(context);
      return retryWhileStale(async () => {
        const view = await findMember(call, userId);
        checkRemoval(membershipStateOf(view), userId === userOf(call).id);
        const { id, version } = view.workspace;
        const events = [memberRemoved(call, id, version + 1, userId)];
        const takeOver = takeOverBy(call, view, userId, Role.UNSPECIFIED);
        const outcome = await store.removeMember(id, version, userId, events, takeOver);
        if (outcome === "stale") return outcome;
        if (outcome === "owns_too_many") throw ownsTooMany(caps);
        signalMembership(bus, id, userId);
        return {};
      });
    },

    async getMembership({ workspaceId, userId }) {
      const workspace = await store.findWorkspace(workspaceId, userId);
      return { workspaceExists: workspace !== undefined, role: workspace?.role ?? Role.UNSPECIFIED };
    },

    async takeOverWorkspace(_request, context) {
      const call = callOf(context);
      await changeRole(call, userOf(call).id, Role.OWNER);
      return {};
    },

    async checkAccountDeletion(_request, context) {
      await requireNoSharedWorkspaceOf(store, userOf(callOf(context)).id);
      return {};
    },

    async batchGetWorkspaces({ workspaceIds }, context) {
      const { user } = callOf(context);
      const [found, charges] = await Promise.all([
        store.findWorkspaces(workspaceIds, user?.id ?? ""),
        store.findCharges(workspaceIds),
      ]);
      const workspaces = user ? found.map((workspace) => withinLimit(user, workspace)) : found;
      return { workspaces: workspaces.map(toWorkspace), charges: charges.map(toCharge) };
    },
  };
}

/** A workspace with the role that the user's credential has in it. */
function withinLimit(user: UserCaller, workspace: WorkspaceView): WorkspaceView {
  return { ...workspace, role: limitRole(workspace.role, user) };
}

function newWorkspace(name: string): WorkspaceRecord {
  const now = new Date();
  return { id: newId(), name, createdAt: now, updatedAt: now, version: 1 };
}

function found<T>(view: T | undefined): T {
  if (view === undefined) throw new DomainError("WORKSPACE_NOT_FOUND", "There is no such workspace.");
  return view;
}

function membershipStateOf({ workspace, member, owners }: MemberView): MembershipState {
  return { actor: workspace.role, target: member?.role ?? Role.UNSPECIFIED, owners };
}

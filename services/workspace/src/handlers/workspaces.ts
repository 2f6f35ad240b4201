import { create } from "@bufbuild/protobuf";
import type { ServiceImpl } from "@connectrpc/connect";
import { type Cursor, readPageBy } from "@sandgate/kit/base/page";
import type { ServiceContext } from "@sandgate/kit/process/service";
import { requireLimitedRole, requireRoleFor } from "@sandgate/kit/rpc/access";
import { callOf, userOf } from "@sandgate/kit/rpc/context";
import { createRunIdempotent } from "@sandgate/kit/rpc/idempotency";
import { retryWhileStale } from "@sandgate/kit/storage/optimistic";
import { Role } from "@sandgate/proto/common/v1/access";
import { CreateWorkspaceResponseSchema, WorkspaceService } from "@sandgate/proto/workspace/v1/workspace";
import { newWorkspace, type WorkspacePosition } from "../domain/workspaces.ts";
import { toQuotaOwner, toWorkspace } from "../messages.ts";
import type { WorkspaceSettings } from "../settings.ts";
import type { WorkspaceStore } from "../store/store.ts";
import { requireNoSharedWorkspaceOf } from "../usecases/deleted-accounts.ts";
import { deleteWorkspace } from "../usecases/deletions.ts";
import {
  createWorkspace,
  ensurePersonalWorkspace,
  findWorkspace,
  renameWorkspace,
  withinLimit,
} from "../usecases/workspaces.ts";

const { method } = WorkspaceService;

/** Answers the calls about workspaces. */
export function createWorkspaceHandlers(o: ServiceContext<WorkspaceSettings, WorkspaceStore>) {
  const { store } = o;
  const runIdempotent = createRunIdempotent(o);
  return {
    async createWorkspace(request, context) {
      const call = callOf(context);
      // Whoever creates a workspace owns it.
      requireLimitedRole(Role.OWNER, userOf(call), Role.OWNER);
      return runIdempotent(call, method.createWorkspace, request, async (recordFor) => {
        const workspace = newWorkspace(request.name);
        const response = create(CreateWorkspaceResponseSchema, {
          workspace: toWorkspace({ ...workspace, role: Role.OWNER }),
        });
        await createWorkspace(o, call, workspace, await recordFor(response));
        return response;
      });
    },

    async listWorkspaces({ page }, context) {
      const call = callOf(context);
      const user = userOf(call);
      await ensurePersonalWorkspace(store, call);
      const { rows, nextCursor } = await readPageBy(toCursor, page, (limit, after) =>
        store.workspaces.list(user.id, after && toPosition(after), limit),
      );
      return {
        workspaces: rows.map((row) => toWorkspace(withinLimit(user, row))),
        nextCursor,
        defaultWorkspaceId: (await store.workspaces.findDefault(user.id)) ?? "",
      };
    },

    async getWorkspace(_request, context) {
      const workspace = await findWorkspace(store, callOf(context));
      requireRoleFor(method.getWorkspace, workspace.role);
      return { workspace: toWorkspace(workspace) };
    },

    async updateWorkspace({ name }, context) {
      return { workspace: toWorkspace(await renameWorkspace(store, callOf(context), name)) };
    },

    async deleteWorkspace(_request, context) {
      const call = callOf(context);
      return retryWhileStale(async () => {
        const workspace = await findWorkspace(store, call);
        requireRoleFor(method.deleteWorkspace, workspace.role);
        const outcome = await deleteWorkspace(o, workspace, call);
        return outcome === "done" ? {} : outcome;
      });
    },

    async checkAccountDeletion(_request, context) {
      await requireNoSharedWorkspaceOf(store, userOf(callOf(context)).id);
      return {};
    },

    async batchGetWorkspaces({ workspaceIds }, context) {
      const { user } = callOf(context);
      const [found, quotaOwners] = await Promise.all([
        store.workspaces.findMany(workspaceIds, user?.id ?? ""),
        store.workspaces.findQuotaOwners(workspaceIds),
      ]);
      const workspaces = user ? found.map((workspace) => withinLimit(user, workspace)) : found;
      return { workspaces: workspaces.map(toWorkspace), quotaOwners: quotaOwners.map(toQuotaOwner) };
    },
  } satisfies Partial<ServiceImpl<typeof WorkspaceService>>;
}

/** A cursor has the role before the id. */
function toCursor({ role, createdAt, id }: WorkspacePosition): Cursor {
  return { createdAt, id: `${role}/${id}` };
}

/** The version before this one made cursors without a role, of a list in which roles didn't count. */
function toPosition({ createdAt, id }: Cursor): WorkspacePosition {
  const role = [Role.OWNER, Role.ADMIN, Role.MEMBER].find((each) => id.startsWith(`${each}/`));
  return role === undefined
    ? { role: Role.OWNER, createdAt, id }
    : { role, createdAt, id: id.slice(`${role}/`.length) };
}

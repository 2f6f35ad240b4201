import { DomainError } from "@sandgate/kit/base/domain-error";
import { limitRole, requireRoleFor } from "@sandgate/kit/rpc/access";
import { type Call, type UserCaller, userOf, workspaceOf } from "@sandgate/kit/rpc/context";
import type { IdempotencyRecord } from "@sandgate/kit/storage/idempotency-record";
import { retryWhileStale } from "@sandgate/kit/storage/optimistic";
import { WorkspaceService } from "@sandgate/proto/workspace/v1/workspace";
import { type Quotas, tooManyWorkspaces } from "../domain/quotas.ts";
import { newWorkspace, versionOf, type WorkspaceRecord, type WorkspaceView } from "../domain/workspaces.ts";
import { workspaceCreated, workspaceUpdated } from "../events.ts";
import type { WorkspaceStore } from "../store/store.ts";

const { method } = WorkspaceService;

/** A workspace with the role that the user's credential has in it. */
export function withinLimit(user: UserCaller, workspace: WorkspaceView): WorkspaceView {
  return { ...workspace, role: limitRole(workspace.role, user) };
}

/** Throws WORKSPACE_NOT_FOUND for undefined. */
export function found<T>(view: T | undefined): T {
  if (view === undefined) throw new DomainError("WORKSPACE_NOT_FOUND", "There is no such workspace.");
  return view;
}

/** The call's workspace as its user's credential sees it now. */
export async function findWorkspace(store: WorkspaceStore, call: Call): Promise<WorkspaceView> {
  const user = userOf(call);
  return withinLimit(user, found(await store.workspaces.find(workspaceOf(call), user.id)));
}

/** Creates a workspace that the call's user owns. */
export async function createWorkspace(
  { store, settings: quotas }: { store: WorkspaceStore; settings: Quotas },
  call: Call,
  workspace: WorkspaceRecord,
  record: IdempotencyRecord | undefined,
): Promise<void> {
  const ownerId = userOf(call).id;
  const events = [workspaceCreated(call, workspace, ownerId)];
  const outcome = await store.workspaces.create(workspace, ownerId, quotas, events, record);
  if (outcome === "account_deleted") throw new DomainError("INVALID_TOKEN", "This account has been deleted.");
  if (outcome === "owns_too_many") throw tooManyWorkspaces(quotas);
}

export async function ensurePersonalWorkspace(store: WorkspaceStore, call: Call): Promise<void> {
  const userId = userOf(call).id;
  if (await store.accounts.hadPersonalWorkspace(userId)) return;
  const workspace = newWorkspace("Personal");
  await store.workspaces.createPersonal(workspace, userId, [workspaceCreated(call, workspace, userId)]);
}

/** Renames the call's workspace. */
export async function renameWorkspace(store: WorkspaceStore, call: Call, name: string): Promise<WorkspaceView> {
  return retryWhileStale(async () => {
    const workspace = await findWorkspace(store, call);
    requireRoleFor(method.updateWorkspace, workspace.role);
    const updatedAt = new Date();
    const read = versionOf(workspace);
    const events = [workspaceUpdated(call, read)];
    const outcome = await store.workspaces.rename({ ...read, events }, name, updatedAt);
    return outcome === "done" ? { ...workspace, name, updatedAt } : outcome;
  });
}

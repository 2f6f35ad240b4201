import { DomainError } from "@sandgate/kit/base/domain-error";
import type { EventBus } from "@sandgate/kit/events/bus";
import type { StagedEvent } from "@sandgate/kit/events/outbox";
import { type Call, userOf, workspaceOf } from "@sandgate/kit/rpc/context";
import type { IdempotencyRecord } from "@sandgate/kit/storage/idempotency-record";
import { retryWhileStale } from "@sandgate/kit/storage/optimistic";
import { Role } from "@sandgate/proto/common/v1/access";
import {
  checkAdd,
  checkRemoval,
  checkRoleChange,
  type MemberRecord,
  type MembershipState,
  type MemberView,
  memberNotFound,
} from "../domain/members.ts";
import { takesOver } from "../domain/quota-owners.ts";
import { type Quotas, tooManyMembers, tooManyWorkspaces } from "../domain/quotas.ts";
import { versionOf } from "../domain/workspaces.ts";
import { memberAdded, memberRemoved, memberUpdated, signalMembership, workspaceTakenOver } from "../events.ts";
import type { MemberChange } from "../store/members.ts";
import type { WorkspaceStore } from "../store/store.ts";
import { found, withinLimit } from "./workspaces.ts";

interface Context {
  readonly store: WorkspaceStore;
  readonly bus: EventBus;
  readonly settings: Quotas;
}

/** Adds a member to the call's workspace. */
export async function addMember(
  { store, bus, settings: quotas }: Context,
  call: Call,
  member: MemberRecord,
  record: IdempotencyRecord | undefined,
): Promise<void> {
  return retryWhileStale(async () => {
    const view = await findMember(store, call, member.userId);
    checkAdd(stateOf(view), member.role);
    const read = versionOf(view.workspace);
    const events = [memberAdded(call, read, member)];
    const outcome = await store.members.add({ ...read, events }, member, quotas, record);
    if (outcome === "stale") return outcome;
    if (outcome === "account_deleted") {
      throw new DomainError("MEMBER_NOT_FOUND", "This user's account has been deleted.");
    }
    if (outcome === "too_many_members") throw tooManyMembers(quotas);
    signalMembership(bus, read.workspaceId, member.userId);
  });
}

/** Gives a member of the call's workspace another role. */
export async function changeRole(o: Context, call: Call, userId: string, role: Role): Promise<MemberRecord> {
  return retryWhileStale(async () => {
    const view = await findMember(o.store, call, userId);
    checkRoleChange(stateOf(view), role);
    if (!view.member) throw memberNotFound();
    const read = versionOf(view.workspace);
    const events = view.member.role === role ? [] : [memberUpdated(call, read, { userId, role })];
    const change = changeBy(o, call, view, { userId, role }, events);
    const outcome = await o.store.members.changeRole(change, userId, role);
    if (outcome === "stale") return outcome;
    if (outcome === "owns_too_many") throw tooManyWorkspaces(o.settings);
    signalMembership(o.bus, read.workspaceId, userId);
    return { ...view.member, role };
  });
}

/** Removes a member from the call's workspace. */
export async function removeMember(o: Context, call: Call, userId: string): Promise<void> {
  return retryWhileStale(async () => {
    const view = await findMember(o.store, call, userId);
    checkRemoval(stateOf(view), userId === userOf(call).id);
    const read = versionOf(view.workspace);
    const events = [memberRemoved(call, read, userId)];
    const change = changeBy(o, call, view, { userId, role: Role.UNSPECIFIED }, events);
    const outcome = await o.store.members.remove(change, userId);
    if (outcome === "stale") return outcome;
    if (outcome === "owns_too_many") throw tooManyWorkspaces(o.settings);
    signalMembership(o.bus, read.workspaceId, userId);
  });
}

async function findMember(store: WorkspaceStore, call: Call, userId: string): Promise<MemberView> {
  const user = userOf(call);
  const view = found(await store.members.find(workspaceOf(call), userId, user.id));
  return { ...view, workspace: withinLimit(user, view.workspace) };
}

function stateOf({ workspace, member, owners }: MemberView): MembershipState {
  return { actor: workspace.role, target: member?.role ?? Role.UNSPECIFIED, owners };
}

/** The change that gives a member this role, and makes the call's user the quota owner if the rules say so. */
function changeBy(
  { settings: quotas }: Context,
  call: Call,
  view: MemberView,
  { userId, role }: Pick<MemberRecord, "userId" | "role">,
  events: readonly StagedEvent[],
): MemberChange {
  const { workspace, quotaOwner } = view;
  const read = versionOf(workspace);
  const { actor, target } = stateOf(view);
  const actorId = userOf(call).id;
  if (!takesOver({ quotaOwner, actor: { id: actorId, role: actor }, target: { id: userId, role: target }, role })) {
    return { ...read, events, takeOver: undefined };
  }
  const takenOver = workspaceTakenOver(call, read, actorId);
  return { ...read, events: [takenOver, ...events], takeOver: { userId: actorId, quotas } };
}

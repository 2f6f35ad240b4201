import { DomainError } from "@sandgate/kit/base/domain-error";
import type { Logger } from "@sandgate/kit/base/logging";
import type { Cursor } from "@sandgate/kit/base/page";
import type { EventBus } from "@sandgate/kit/events/bus";
import type { EventCause } from "@sandgate/kit/events/outbox";
import { retryWhileStale } from "@sandgate/kit/storage/optimistic";
import { Role } from "@sandgate/proto/common/v1/access";
import { type MemberRecord, successorOf } from "../domain/members.ts";
import { versionOf, type WorkspacePosition } from "../domain/workspaces.ts";
import { memberRemoved, memberUpdated, signalMembership } from "../events.ts";
import type { WorkspaceStore } from "../store/store.ts";
import { deleteWorkspace } from "./deletions.ts";

/** Workspaces of a user, and members of a workspace, that are read at once. */
const batchSize = 100;

/** Throws CONFLICT while the user is the last owner of a workspace that has other members. */
export async function requireNoSharedWorkspaceOf(store: WorkspaceStore, userId: string): Promise<void> {
  let last: WorkspacePosition | undefined;
  for (;;) {
    const workspaces = await store.workspaces.list(userId, last, batchSize);
    for (const { id, name } of workspaces) {
      const view = await store.members.find(id, userId, userId);
      if (view?.member?.role !== Role.OWNER || view.owners > 1) continue;
      if ((await store.members.list(id, undefined, 2)).length < 2) continue;
      throw new DomainError("CONFLICT", `You are the last owner of the workspace ${name}, which has other members.`, {
        hint: "Make another member an owner with PUT /workspaces/{workspace_id}/members/{user_id}, or delete the workspace.",
      });
    }
    if (workspaces.length < batchSize) return;
    last = workspaces.at(-1);
  }
}

/**
 * Ends all memberships of a user whose account has been deleted; a workspace that loses its last owner is deleted. The
 * events name whoever deleted the account as the actor.
 *
 * A user who deletes their own account destroys nothing of others. They could delete it while there was another owner,
 * who may have gone before this event came: then another member becomes the owner.
 *
 * By itself the platform deletes accounts that were never verified, which are in no workspace. If such a user is in
 * one, identity's database is from before they were verified, as a restored backup is. Nothing is ended then.
 */
export async function endMemberships(
  o: { store: WorkspaceStore; bus: EventBus; cause: EventCause; logger: Logger },
  userId: string,
): Promise<void> {
  const isAbandoned = o.cause.user === undefined;
  if (isAbandoned && (await o.store.workspaces.list(userId, undefined, 1)).length > 0) {
    o.logger.error({ userId }, "an account that identity takes for one never verified has workspaces, which are kept");
    return;
  }
  await o.store.accounts.markDeleted(userId, new Date());
  for (;;) {
    const workspaces = await o.store.workspaces.list(userId, undefined, batchSize);
    for (const { id } of workspaces) await retryWhileStale(() => endMembership(o, id, userId));
    if (workspaces.length < batchSize) return;
  }
}

async function endMembership(
  { store, bus, cause }: { store: WorkspaceStore; bus: EventBus; cause: EventCause },
  id: string,
  userId: string,
) {
  const view = await store.members.find(id, userId, userId);
  if (view?.member === undefined) return "done";
  const { workspace, member, owners } = view;
  const read = versionOf(workspace);
  if (member.role === Role.OWNER && owners <= 1) {
    const successor = cause.user?.id === userId ? await findSuccessor(store, id, userId) : undefined;
    if (!successor) return deleteWorkspace({ store, bus }, workspace, cause);
    const events = [memberUpdated(cause, read, { userId: successor.userId, role: Role.OWNER })];
    const change = { ...read, events, takeOver: undefined };
    const outcome = await store.members.changeRole(change, successor.userId, Role.OWNER);
    if (outcome === "done") signalMembership(bus, id, successor.userId);
    // There are two owners now, and the next attempt removes the user.
    return "stale";
  }
  const events = [memberRemoved(cause, read, userId)];
  // This makes nobody the quota owner: a remaining owner takes the workspace over on their own.
  const outcome = await store.members.remove({ ...read, events, takeOver: undefined }, userId);
  if (outcome === "done") signalMembership(bus, id, userId);
  return outcome;
}

async function findSuccessor(store: WorkspaceStore, id: string, userId: string): Promise<MemberRecord | undefined> {
  const others: MemberRecord[] = [];
  let last: Cursor | undefined;
  for (;;) {
    const members = await store.members.list(id, last, batchSize);
    others.push(...members.filter((member) => member.userId !== userId));
    const end = members.at(-1);
    if (!end || members.length < batchSize) return successorOf(others);
    last = { createdAt: end.joinedAt, id: end.userId };
  }
}

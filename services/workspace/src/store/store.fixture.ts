import { newId } from "@sandgate/kit/base/ids";
import type { StagedEvent } from "@sandgate/kit/events/outbox";
import { Role } from "@sandgate/proto/common/v1/access";
import type { MemberRecord } from "../domain/members.ts";
import type { WorkspaceRecord } from "../domain/workspaces.ts";
import type { NewDeletion } from "./deletions.ts";
import type { MemberChange } from "./members.ts";
import type { WorkspaceStore } from "./store.ts";

export const at = (ms: number) => new Date(Date.UTC(2026, 0, 1) + ms);
export const unlimited = { maxOwned: 0, maxMembers: 0 };
export const quotas = { maxOwned: 2, maxMembers: 2 };
export const event = (name: string) => ({ id: newId(), subject: name, bytes: new Uint8Array() });
export const takeOver = (userId: string) => ({ userId, quotas });

export function workspaceAt(ms: number): WorkspaceRecord {
  return { id: newId(), name: "Lab", createdAt: at(ms), updatedAt: at(ms), version: 1 };
}

export function memberAt(ms: number, userId: string, role: Role = Role.MEMBER): MemberRecord {
  return { userId, role, joinedAt: at(ms) };
}

export function deletionAt(ms: number, announceAgainMs: number, services: readonly string[] = []): NewDeletion {
  return { services, deletedAt: at(ms), announceAgainAt: at(announceAgainMs) };
}

export function change(
  workspaceId: string,
  version: number,
  events: readonly StagedEvent[] = [],
  takenOver?: MemberChange["takeOver"],
): MemberChange {
  return { workspaceId, version, events, takeOver: takenOver };
}

/** Without limits. */
export async function createWorkspace(store: WorkspaceStore, ms = 0, ownerId = "ann"): Promise<WorkspaceRecord> {
  const workspace = workspaceAt(ms);
  await store.workspaces.create(workspace, ownerId, unlimited, [], undefined);
  return workspace;
}

/** The subjects of the events that wait in the outbox. */
export async function subjectsOf(store: WorkspaceStore): Promise<string[]> {
  return (await store.outbox.unsent(100)).map(({ subject }) => subject);
}

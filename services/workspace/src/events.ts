import { timestampFromDate } from "@bufbuild/protobuf/wkt";
import type { EventBus } from "@sandgate/kit/events/bus";
import { type EventCause, type StagedEvent, stageEvent } from "@sandgate/kit/events/outbox";
import type { Call } from "@sandgate/kit/rpc/context";
import {
  MemberAddedSchema,
  MemberRemovedSchema,
  MemberUpdatedSchema,
  WorkspaceCreatedSchema,
  WorkspaceDeletedSchema,
  WorkspaceTakenOverSchema,
  WorkspaceUpdatedSchema,
} from "@sandgate/proto/workspace/v1/workspace_events";
import type { MemberRecord } from "./domain/members.ts";

/** Broadcast when a membership, role or workspace changes or ends, for those who cache the answers of GetMembership. */
const membershipTopic = "workspace.membership";

/** @param userId whose membership changed; everybody's when left out */
export function signalMembership(bus: EventBus, workspaceId: string, userId = "*"): void {
  bus.signal(membershipTopic, `${workspaceId} ${userId}`);
}

export function workspaceCreated(
  call: Call,
  workspace: { readonly id: string; readonly version: number },
  ownerId: string,
): StagedEvent {
  return stageEvent({
    subject: "sandgate.workspace.workspace.created.v1",
    entityId: workspace.id,
    entityVersion: workspace.version,
    workspaceId: workspace.id,
    call,
    schema: WorkspaceCreatedSchema,
    payload: { workspaceId: workspace.id, ownerId },
  });
}

export function workspaceUpdated(call: Call, workspaceId: string, version: number): StagedEvent {
  return stageEvent({
    subject: "sandgate.workspace.workspace.updated.v1",
    entityId: workspaceId,
    entityVersion: version,
    workspaceId,
    call,
    schema: WorkspaceUpdatedSchema,
    payload: { workspaceId },
  });
}

export function workspaceTakenOver(call: Call, workspaceId: string, version: number, userId: string): StagedEvent {
  return stageEvent({
    subject: "sandgate.workspace.workspace.taken_over.v1",
    entityId: workspaceId,
    entityVersion: version,
    workspaceId,
    call,
    schema: WorkspaceTakenOverSchema,
    payload: { workspaceId, userId },
  });
}

/**
 * @param call what deletes the workspace: a call, or the deletion of an account; left out when it is announced again
 */
export function workspaceDeleted(
  call: EventCause | undefined,
  workspaceId: string,
  version: number,
  deletedAt: Date,
): StagedEvent {
  return stageEvent({
    subject: "sandgate.workspace.workspace.deleted.v1",
    entityId: workspaceId,
    entityVersion: version,
    workspaceId,
    call,
    schema: WorkspaceDeletedSchema,
    payload: { workspaceId, deletedAt: timestampFromDate(deletedAt) },
  });
}

/** A membership is an entity with the versions of its workspace: they grow even when it ends and begins again. */
export function memberAdded(call: Call, workspaceId: string, version: number, member: MemberRecord): StagedEvent {
  return stageEvent({
    subject: "sandgate.workspace.member.added.v1",
    entityId: `${workspaceId}/${member.userId}`,
    entityVersion: version,
    workspaceId,
    call,
    schema: MemberAddedSchema,
    payload: { workspaceId, userId: member.userId, role: member.role },
  });
}

export function memberUpdated(
  call: Call,
  workspaceId: string,
  version: number,
  { userId, role }: Pick<MemberRecord, "userId" | "role">,
): StagedEvent {
  return stageEvent({
    subject: "sandgate.workspace.member.updated.v1",
    entityId: `${workspaceId}/${userId}`,
    entityVersion: version,
    workspaceId,
    call,
    schema: MemberUpdatedSchema,
    payload: { workspaceId, userId, role },
  });
}

export function memberRemoved(call: EventCause, workspaceId: string, version: number, userId: string): StagedEvent {
  return stageEvent({
    subject: "sandgate.workspace.member.removed.v1",
    entityId: `${workspaceId}/${userId}`,
    entityVersion: version,
    workspaceId,
    call,
    schema: MemberRemovedSchema,
    payload: { workspaceId, userId },
  });
}

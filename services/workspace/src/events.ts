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
import type { WorkspaceRecord, WorkspaceVersion } from "./domain/workspaces.ts";

/** Broadcast when a membership, role or workspace changes or ends, for those who cache the answers of GetMembership. */
const membershipTopic = "workspace.membership";

/** @param userId whose membership changed; everybody's when left out */
export function signalMembership(bus: EventBus, workspaceId: string, userId = "*"): void {
  bus.signal(membershipTopic, `${workspaceId} ${userId}`);
}

// Each event of a change takes the version of the workspace that was read, and has the next.

export function workspaceCreated(
  call: Call,
  { id: workspaceId, version }: WorkspaceRecord,
  ownerId: string,
): StagedEvent {
  return stageEvent({
    ...ofWorkspace("created", call, { workspaceId, version }, version),
    schema: WorkspaceCreatedSchema,
    payload: { workspaceId, ownerId },
  });
}

export function workspaceUpdated(call: Call, workspace: WorkspaceVersion): StagedEvent {
  const { workspaceId } = workspace;
  return stageEvent({
    ...ofWorkspace("updated", call, workspace),
    schema: WorkspaceUpdatedSchema,
    payload: { workspaceId },
  });
}

export function workspaceTakenOver(call: Call, workspace: WorkspaceVersion, userId: string): StagedEvent {
  const { workspaceId } = workspace;
  return stageEvent({
    ...ofWorkspace("taken_over", call, workspace),
    schema: WorkspaceTakenOverSchema,
    payload: { workspaceId, userId },
  });
}

/** @param cause a call, or the deletion of an account; left out when the deletion is announced again */
export function workspaceDeleted(
  cause: EventCause | undefined,
  workspace: WorkspaceVersion,
  deletedAt: Date,
): StagedEvent {
  const { workspaceId } = workspace;
  return stageEvent({
    ...ofWorkspace("deleted", cause, workspace),
    schema: WorkspaceDeletedSchema,
    payload: { workspaceId, deletedAt: timestampFromDate(deletedAt) },
  });
}

type Membership = Pick<MemberRecord, "userId" | "role">;

export function memberAdded(call: Call, workspace: WorkspaceVersion, { userId, role }: Membership): StagedEvent {
  const { workspaceId } = workspace;
  return stageEvent({
    ...ofMember("added", call, workspace, userId),
    schema: MemberAddedSchema,
    payload: { workspaceId, userId, role },
  });
}

export function memberUpdated(
  cause: EventCause,
  workspace: WorkspaceVersion,
  { userId, role }: Membership,
): StagedEvent {
  const { workspaceId } = workspace;
  return stageEvent({
    ...ofMember("updated", cause, workspace, userId),
    schema: MemberUpdatedSchema,
    payload: { workspaceId, userId, role },
  });
}

export function memberRemoved(cause: EventCause, workspace: WorkspaceVersion, userId: string): StagedEvent {
  const { workspaceId } = workspace;
  return stageEvent({
    ...ofMember("removed", cause, workspace, userId),
    schema: MemberRemovedSchema,
    payload: { workspaceId, userId },
  });
}

function ofWorkspace(
  event: string,
  call: EventCause | undefined,
  { workspaceId, version }: WorkspaceVersion,
  entityVersion = version + 1,
) {
  return {
    subject: `sandgate.workspace.workspace.${event}.v1`,
    entityId: workspaceId,
    entityVersion,
    workspaceId,
    call,
  };
}

/** A membership is an entity with the versions of its workspace: they grow even when it ends and begins again. */
function ofMember(event: string, call: EventCause, { workspaceId, version }: WorkspaceVersion, userId: string) {
  const subject = `sandgate.workspace.member.${event}.v1`;
  return { subject, entityId: `${workspaceId}/${userId}`, entityVersion: version + 1, workspaceId, call };
}

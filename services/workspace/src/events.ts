import { timestampFromDate } from "@bufbuild/protobuf/wkt";
import type { EventBus } from "@sandgate/kit/events/bus";
import { type StagedEvent, stageEvent } from "@sandgate/kit/events/outbox";
import type { Call } from "@sandgate/kit/rpc/context";
import {
  MemberAddedSchema,
  MemberRemovedSchema,
  WorkspaceCreatedSchema,
  WorkspaceDeletedSchema,
} from "@sandgate/proto/workspace/v1/workspace_events";
import type { MemberRecord } from "./store/store.ts";

/** Broadcast when a membership, a role or a workspace goes or changes, for whoever remembers the answers of GetMembership. */
const membershipTopic = "workspace.membership";

/** @param userId whose membership changed; left out: everybody's */
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

/** @param call left out where nobody's call deletes or announces */
export function workspaceDeleted(
  call: Call | undefined,
  workspaceId: string,
  version: number,
  deletedAt: Date,
): StagedEvent {
  return stageEvent({
    subject: "sandgate.workspace.workspace.deleted.v1",
    entityId: workspaceId,
    entityVersion: version,
    workspaceId,
    ...(call === undefined ? {} : { call }),
    schema: WorkspaceDeletedSchema,
    payload: { workspaceId, deletedAt: timestampFromDate(deletedAt) },
  });
}

/** A membership is an entity of its own whose versions are its workspace's: they grow even when it is ended and made again. */
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

export function memberRemoved(
  call: Call | undefined,
  workspaceId: string,
  version: number,
  userId: string,
): StagedEvent {
  return stageEvent({
    subject: "sandgate.workspace.member.removed.v1",
    entityId: `${workspaceId}/${userId}`,
    entityVersion: version,
    workspaceId,
    ...(call === undefined ? {} : { call }),
    schema: MemberRemovedSchema,
    payload: { workspaceId, userId },
  });
}

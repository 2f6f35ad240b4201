import { timestampFromDate } from "@bufbuild/protobuf/wkt";
import { type EventCause, type StagedEvent, stageEvent } from "@sandgate/kit/events/outbox";
import type { Call } from "@sandgate/kit/rpc/context";
import {
  PreviewCreatedSchema,
  PreviewLinkCreatedSchema,
  PreviewRevokedSchema,
  SandboxExtendedSchema,
  SandboxFailedSchema,
  SandboxProvisionedSchema,
  SandboxReadySchema,
  SandboxStoppedSchema,
  SandboxStopRequestedSchema,
  SandboxUsedSchema,
  WorkspacePurgedSchema,
} from "@sandgate/proto/sandbox/v1/sandbox_events";
import type { CountedUses } from "./domain/audited-uses.ts";
import type { Preview } from "./domain/previews.ts";
import type { Sandbox } from "./domain/sandbox.ts";

function about(sandbox: Sandbox) {
  return { entityId: sandbox.id, entityVersion: sandbox.version, workspaceId: sandbox.workspaceId };
}

export function sandboxProvisioned(call: Call, sandbox: Sandbox): StagedEvent {
  return stageEvent({
    ...about(sandbox),
    subject: "sandgate.sandbox.sandbox.provisioned.v1",
    call,
    schema: SandboxProvisionedSchema,
    payload: { sandboxId: sandbox.id, name: sandbox.name, imageId: sandbox.image.imageId },
  });
}

export function sandboxExtended(call: Call, sandbox: Sandbox): StagedEvent {
  return stageEvent({
    ...about(sandbox),
    subject: "sandgate.sandbox.sandbox.extended.v1",
    call,
    schema: SandboxExtendedSchema,
    payload: { sandboxId: sandbox.id, expiresAt: sandbox.expiresAt && timestampFromDate(sandbox.expiresAt) },
  });
}

export function sandboxStopRequested(call: Call, sandbox: Sandbox): StagedEvent {
  return stageEvent({
    ...about(sandbox),
    subject: "sandgate.sandbox.sandbox.stop_requested.v1",
    call,
    schema: SandboxStopRequestedSchema,
    payload: { sandboxId: sandbox.id },
  });
}

/** Tells of something that was done in a sandbox. */
export function sandboxUsed(call: EventCause, { id, workspaceId, sandboxId, ...use }: CountedUses): StagedEvent {
  return stageEvent({
    id,
    subject: "sandgate.sandbox.sandbox.used.v1",
    entityId: sandboxId ?? workspaceId,
    // Uses leave the record's version.
    entityVersion: Date.now(),
    workspaceId,
    call,
    schema: SandboxUsedSchema,
    payload: { ...use, sandboxId: sandboxId ?? "" },
  });
}

function sandboxReady(sandbox: Sandbox): StagedEvent {
  return stageEvent({
    ...about(sandbox),
    subject: "sandgate.sandbox.sandbox.ready.v1",
    schema: SandboxReadySchema,
    payload: { sandboxId: sandbox.id },
  });
}

function sandboxFailed(sandbox: Sandbox): StagedEvent {
  return stageEvent({
    ...about(sandbox),
    subject: "sandgate.sandbox.sandbox.failed.v1",
    schema: SandboxFailedSchema,
    payload: { sandboxId: sandbox.id, reason: sandbox.stateReason ?? "" },
  });
}

function sandboxStopped(sandbox: Sandbox): StagedEvent {
  return stageEvent({
    ...about(sandbox),
    subject: "sandgate.sandbox.sandbox.stopped.v1",
    schema: SandboxStoppedSchema,
    payload: { sandboxId: sandbox.id, reason: sandbox.stateReason ?? "" },
  });
}

/** The event that a record's new state causes; none for `provisioning` and `stopping`. */
export function sandboxStateEntered(sandbox: Sandbox): StagedEvent[] {
  switch (sandbox.state) {
    case "ready":
      return [sandboxReady(sandbox)];
    case "failed":
      return [sandboxFailed(sandbox)];
    case "stopped":
      return [sandboxStopped(sandbox)];
    default:
      return [];
  }
}

export function previewCreated(call: Call, sandbox: Sandbox, { id: previewId, ...preview }: Preview): StagedEvent {
  return stageEvent({
    ...about(sandbox),
    subject: "sandgate.sandbox.sandbox.preview_created.v1",
    call,
    schema: PreviewCreatedSchema,
    payload: { sandboxId: sandbox.id, previewId, port: preview.port, public: preview.public },
  });
}

export function previewRevoked(call: Call, sandbox: Sandbox, { id: previewId }: Preview): StagedEvent {
  return stageEvent({
    ...about(sandbox),
    subject: "sandgate.sandbox.sandbox.preview_revoked.v1",
    call,
    schema: PreviewRevokedSchema,
    payload: { sandboxId: sandbox.id, previewId },
  });
}

export function previewLinkCreated(call: Call, sandbox: Sandbox, { id: previewId }: Preview): StagedEvent {
  return stageEvent({
    ...about(sandbox),
    subject: "sandgate.sandbox.sandbox.preview_link_created.v1",
    call,
    schema: PreviewLinkCreatedSchema,
    payload: { sandboxId: sandbox.id, previewId },
  });
}

export function workspacePurged(workspaceId: string, at: Date): StagedEvent {
  return stageEvent({
    subject: "sandgate.sandbox.workspace.workspace_purged.v1",
    entityId: workspaceId,
    entityVersion: at.getTime(),
    workspaceId,
    schema: WorkspacePurgedSchema,
    payload: { workspaceId },
  });
}

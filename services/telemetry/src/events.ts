import { type StagedEvent, stageEvent } from "@sandgate/kit/events/outbox";
import { WorkspacePurgedSchema } from "@sandgate/proto/telemetry/v1/telemetry_events";

export function stagePurged(workspaceId: string, at: Date): StagedEvent {
  return stageEvent({
    subject: "sandgate.telemetry.workspace.workspace_purged.v1",
    entityId: workspaceId,
    entityVersion: at.getTime(),
    workspaceId,
    schema: WorkspacePurgedSchema,
    payload: { workspaceId },
  });
}

import { type StagedEvent, stageEvent } from "@sandgate/kit/events/outbox";
import type { Call } from "@sandgate/kit/rpc/context";
import {
  ImageCreatedSchema,
  ImageDeletedSchema,
  ImageUpdatedSchema,
  RegistryCreatedSchema,
  RegistryDeletedSchema,
  RegistryUpdatedSchema,
  WorkspacePurgedSchema,
} from "@sandgate/proto/imageregistry/v1/image_registry_events";

interface Changed {
  readonly id: string;
  readonly workspaceId: string;
  /** The version after the change. */
  readonly version: number;
}

const schemas = { created: ImageCreatedSchema, updated: ImageUpdatedSchema, deleted: ImageDeletedSchema };
const registrySchemas = {
  created: RegistryCreatedSchema,
  updated: RegistryUpdatedSchema,
  deleted: RegistryDeletedSchema,
};

/** @param call left out for the default image that a start creates */
export function imageChanged(
  change: keyof typeof schemas,
  { id, workspaceId, version }: Changed,
  call?: Call,
): StagedEvent {
  return stageEvent({
    subject: `sandgate.image-registry.image.${change}.v1`,
    entityId: id,
    entityVersion: version,
    workspaceId,
    call,
    schema: schemas[change],
    payload: { imageId: id },
  });
}

export function registryChanged(
  change: keyof typeof registrySchemas,
  { id, workspaceId, version }: Changed,
  call: Call,
): StagedEvent {
  return stageEvent({
    subject: `sandgate.image-registry.registry.${change}.v1`,
    entityId: id,
    entityVersion: version,
    workspaceId,
    call,
    schema: registrySchemas[change],
    payload: { registryId: id },
  });
}

export function workspacePurged(workspaceId: string, at: Date): StagedEvent {
  return stageEvent({
    subject: "sandgate.image-registry.workspace.workspace_purged.v1",
    entityId: workspaceId,
    entityVersion: at.getTime(),
    workspaceId,
    schema: WorkspacePurgedSchema,
    payload: { workspaceId },
  });
}

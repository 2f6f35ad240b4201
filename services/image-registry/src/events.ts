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

/** An image or a registry credential: a new one, or one with the version that was read. */
interface Entity {
  readonly id: string;
  readonly workspaceId: string;
  readonly version: number;
}

// Their `call` is undefined for the default image, which a start creates and changes.

export function imageCreated(call: Call | undefined, image: Entity): StagedEvent {
  const payload = { imageId: image.id };
  return stageEvent({ ...about("image.created", call, image, image.version), schema: ImageCreatedSchema, payload });
}

export function imageUpdated(call: Call | undefined, image: Entity): StagedEvent {
  const payload = { imageId: image.id };
  return stageEvent({ ...about("image.updated", call, image), schema: ImageUpdatedSchema, payload });
}

export function imageDeleted(call: Call, image: Entity): StagedEvent {
  const payload = { imageId: image.id };
  return stageEvent({ ...about("image.deleted", call, image), schema: ImageDeletedSchema, payload });
}

export function registryCreated(call: Call, registry: Entity): StagedEvent {
  const payload = { registryId: registry.id };
  const created = about("registry.created", call, registry, registry.version);
  return stageEvent({ ...created, schema: RegistryCreatedSchema, payload });
}

export function registryUpdated(call: Call, registry: Entity): StagedEvent {
  const payload = { registryId: registry.id };
  return stageEvent({ ...about("registry.updated", call, registry), schema: RegistryUpdatedSchema, payload });
}

export function registryDeleted(call: Call, registry: Entity): StagedEvent {
  const payload = { registryId: registry.id };
  return stageEvent({ ...about("registry.deleted", call, registry), schema: RegistryDeletedSchema, payload });
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

function about(
  event: string,
  call: Call | undefined,
  { id, workspaceId, version }: Entity,
  entityVersion = version + 1,
) {
  return { subject: `sandgate.image-registry.${event}.v1`, entityId: id, entityVersion, workspaceId, call };
}

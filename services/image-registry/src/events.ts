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
import type { ImageRecord } from "./domain/images.ts";
import type { RegistryRecord } from "./domain/registries.ts";

type Image = Pick<ImageRecord, "id" | "workspaceId" | "version">;
type Registry = Pick<RegistryRecord, "id" | "workspaceId" | "version">;

/** @param call undefined for the default image that a start creates */
export function imageCreated(call: Call | undefined, image: Image): StagedEvent {
  return imageEvent("created", ImageCreatedSchema, call, image);
}

/** @param image with the version that was read */
export function imageUpdated(call: Call, image: Image): StagedEvent {
  return imageEvent("updated", ImageUpdatedSchema, call, { ...image, version: image.version + 1 });
}

/** @param image with the version that was read */
export function imageDeleted(call: Call, image: Image): StagedEvent {
  return imageEvent("deleted", ImageDeletedSchema, call, { ...image, version: image.version + 1 });
}

export function registryCreated(call: Call, registry: Registry): StagedEvent {
  return registryEvent("created", RegistryCreatedSchema, call, registry);
}

/** @param registry with the version that was read */
export function registryUpdated(call: Call, registry: Registry): StagedEvent {
  return registryEvent("updated", RegistryUpdatedSchema, call, { ...registry, version: registry.version + 1 });
}

/** @param registry with the version that was read */
export function registryDeleted(call: Call, registry: Registry): StagedEvent {
  return registryEvent("deleted", RegistryDeletedSchema, call, { ...registry, version: registry.version + 1 });
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

function imageEvent(
  event: string,
  schema: typeof ImageCreatedSchema | typeof ImageUpdatedSchema | typeof ImageDeletedSchema,
  call: Call | undefined,
  { id, workspaceId, version }: Image,
): StagedEvent {
  return stageEvent({
    subject: `sandgate.image-registry.image.${event}.v1`,
    entityId: id,
    entityVersion: version,
    workspaceId,
    call,
    schema,
    payload: { imageId: id },
  });
}

function registryEvent(
  event: string,
  schema: typeof RegistryCreatedSchema | typeof RegistryUpdatedSchema | typeof RegistryDeletedSchema,
  call: Call,
  { id, workspaceId, version }: Registry,
): StagedEvent {
  return stageEvent({
    subject: `sandgate.image-registry.registry.${event}.v1`,
    entityId: id,
    entityVersion: version,
    workspaceId,
    call,
    schema,
    payload: { registryId: id },
  });
}

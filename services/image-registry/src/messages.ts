import { create, type MessageInitShape } from "@bufbuild/protobuf";
import { timestampFromDate } from "@bufbuild/protobuf/wkt";
import {
  type Image,
  ImageSchema,
  type Registry,
  RegistrySchema,
  type ResolvedImageSchema,
} from "@sandgate/proto/imageregistry/v1/image_registry";
import { fullReferenceOf } from "./domain/images.ts";
import type { ImageRecord, ImageView, RegistryRecord } from "./store/store.ts";

export function toImage(image: ImageView): Image {
  return create(ImageSchema, {
    id: image.id,
    name: image.name,
    image: image.image,
    ...(image.description !== undefined && { description: image.description }),
    tag: image.tag,
    enabled: image.enabled,
    isDefault: image.workspaceId === "",
    memoryMb: image.memoryMb,
    createdAt: timestampFromDate(image.createdAt),
    updatedAt: timestampFromDate(image.updatedAt),
    ...(image.readinessPort !== undefined && { readinessPort: image.readinessPort }),
    ...(image.ttlSeconds !== undefined && { ttlSeconds: image.ttlSeconds }),
    workspaceId: image.workspaceId,
    registryId: image.registryId ?? "",
    registryName: image.registryName ?? "",
  });
}

/** What a sandbox needs to know of its image. */
export function toResolvedImage(image: ImageRecord): MessageInitShape<typeof ResolvedImageSchema> {
  return {
    imageId: image.id,
    reference: fullReferenceOf(image),
    memoryMb: image.memoryMb,
    ...(image.readinessPort !== undefined && { readinessPort: image.readinessPort }),
    ...(image.ttlSeconds !== undefined && { ttlSeconds: image.ttlSeconds }),
    registryId: image.registryId ?? "",
    isDefault: image.workspaceId === "",
  };
}

/** Without the password, which is given out to nobody but the engine that pulls. */
export function toRegistry({ id, name, url, username, workspaceId, createdAt, updatedAt }: RegistryRecord): Registry {
  return create(RegistrySchema, {
    id,
    name,
    url,
    username,
    workspaceId,
    createdAt: timestampFromDate(createdAt),
    updatedAt: timestampFromDate(updatedAt),
  });
}

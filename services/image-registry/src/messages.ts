import { timestampFromDate } from "@bufbuild/protobuf/wkt";
import { createMessage } from "@sandgate/kit/rpc/messages";
import {
  type AuthorizePullResponse,
  AuthorizePullResponseSchema,
  type Image,
  ImageSchema,
  PullLayerSchema,
  type Registry,
  RegistrySchema,
  type ResolvedImage,
  ResolvedImageSchema,
} from "@sandgate/proto/imageregistry/v1/image_registry";
import type { Credential } from "@sandgate/registry-client/registry-client";
import { fullReferenceOf } from "./domain/images.ts";
import type { ImageRecord, ImageView, RegistryRecord } from "./store/store.ts";
import type { AuthorizedPull } from "./upstream/pulls.ts";

export function toImage(image: ImageView): Image {
  return createMessage(ImageSchema, {
    id: image.id,
    name: image.name,
    image: image.image,
    description: image.description,
    tag: image.tag,
    enabled: image.enabled,
    isDefault: image.workspaceId === "",
    memoryMb: image.memoryMb,
    createdAt: timestampFromDate(image.createdAt),
    updatedAt: timestampFromDate(image.updatedAt),
    readinessPort: image.readinessPort,
    ttlSeconds: image.ttlSeconds,
    workspaceId: image.workspaceId,
    registryId: image.registryId ?? "",
    registryName: image.registryName ?? "",
  });
}

/** What a sandbox needs to know of its image. */
export function toResolvedImage(image: ImageRecord): ResolvedImage {
  return createMessage(ResolvedImageSchema, {
    imageId: image.id,
    reference: fullReferenceOf(image),
    memoryMb: image.memoryMb,
    readinessPort: image.readinessPort,
    ttlSeconds: image.ttlSeconds,
    registryId: image.registryId ?? "",
    isDefault: image.workspaceId === "",
  });
}

/** Without the password, which is given out to nobody but the engine that pulls. */
export function toRegistry({ id, name, url, username, workspaceId, createdAt, updatedAt }: RegistryRecord): Registry {
  return createMessage(RegistrySchema, {
    id,
    name,
    url,
    username,
    workspaceId,
    createdAt: timestampFromDate(createdAt),
    updatedAt: timestampFromDate(updatedAt),
  });
}

export function toAuthorizedPull(
  { image, pinnedReference, address, repository, verified }: AuthorizedPull,
  credential: Credential | undefined,
): AuthorizePullResponse {
  return createMessage(AuthorizePullResponseSchema, {
    digest: image.digest,
    pinnedReference,
    registryHost: address.host,
    registryScheme: address.scheme ?? "",
    repository,
    username: credential?.username ?? "",
    password: credential?.password ?? "",
    manifest: image.manifest,
    manifestType: image.mediaType,
    configDigest: image.config.digest,
    config: image.config.content,
    layers: image.layers.map(({ digest, size, diffId }) =>
      createMessage(PullLayerSchema, { digest, sizeBytes: BigInt(size), diffId, verified: verified.has(digest) }),
    ),
  });
}

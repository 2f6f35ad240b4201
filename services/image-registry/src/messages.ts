import { createMessage } from "@sandgate/kit/rpc/messages";
import {
  type AuthorizePullResponse,
  AuthorizePullResponseSchema,
  type Image,
  ImageSchema,
  type Registry,
  RegistrySchema,
  type ResolvedImage,
  ResolvedImageSchema,
} from "@sandgate/proto/imageregistry/v1/image_registry";
import type { Credential } from "@sandgate/registry-client/registry-client";
import { fullReferenceOf, type ImageRecord, type ImageView, isGlobalDefault } from "./domain/images.ts";
import type { RegistryRecord } from "./domain/registries.ts";
import type { AuthorizedPull } from "./upstream/pulls.ts";

export function toImage(image: ImageView): Image {
  return createMessage(ImageSchema, { ...image, isDefault: isGlobalDefault(image) });
}

/** What a sandbox needs to know of its image. */
export function toResolvedImage(image: ImageRecord): ResolvedImage {
  return createMessage(ResolvedImageSchema, {
    ...image,
    imageId: image.id,
    reference: fullReferenceOf(image),
    isDefault: isGlobalDefault(image),
  });
}

/** Without the password, which only the engine that pulls gets. */
export function toRegistry(registry: RegistryRecord): Registry {
  return createMessage(RegistrySchema, registry);
}

export function toAuthorizedPull(
  { image, pinnedReference, address, repository, verified }: AuthorizedPull,
  credential: Credential | undefined,
): AuthorizePullResponse {
  return createMessage(AuthorizePullResponseSchema, {
    digest: image.digest,
    pinnedReference,
    registryHost: address.host,
    registryScheme: address.scheme,
    repository,
    username: credential?.username,
    password: credential?.password,
    manifest: image.manifest,
    manifestType: image.mediaType,
    configDigest: image.config.digest,
    config: image.config.content,
    layers: image.layers.map(({ digest, size, diffId }) => ({
      digest,
      sizeBytes: BigInt(size),
      diffId,
      verified: verified.has(digest),
    })),
  });
}

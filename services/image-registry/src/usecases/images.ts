import { DomainError } from "@sandgate/kit/base/domain-error";
import { type Call, workspaceOf } from "@sandgate/kit/rpc/context";
import type { IdempotencyRecord } from "@sandgate/kit/storage/idempotency-record";
import { retryWhileStale } from "@sandgate/kit/storage/optimistic";
import type { UpdateImageRequest } from "@sandgate/proto/imageregistry/v1/image_registry";
import type { AllowedHosts } from "@sandgate/registry-client/allowed-hosts";
import { followSetting } from "../domain/default-image.ts";
import {
  checkRegistryHost,
  type ImageFields,
  type ImageRecord,
  type ImageView,
  isGlobalDefault,
  newImage,
  readChangedImage,
} from "../domain/images.ts";
import { type Quotas, tooManyImages, workspaceDeleted } from "../domain/quotas.ts";
import { addressOf, type RegistryRecord } from "../domain/registries.ts";
import { imageCreated, imageDeleted, imageUpdated } from "../events.ts";
import type { ImageRegistryStore } from "../store/store.ts";
import { findRegistry, versionOf } from "./registries.ts";

/** Images read at once. */
const pageSize = 500;

/** An image that the call's workspace sees. */
export async function findImage(store: ImageRegistryStore, call: Call, imageId: string): Promise<ImageView> {
  const image = await store.images.find(imageId, workspaceOf(call));
  if (image === undefined) throw new DomainError("IMAGE_NOT_FOUND", "There is no such image in this workspace.");
  return image;
}

/**
 * The image of this id, of this name, or of this name and tag: the workspace's own goes before a global default. Throws
 * CONFLICT where two have the name.
 * @param orDefault an unknown name stands for the oldest global default that is enabled
 */
export async function findImageByName(
  store: ImageRegistryStore,
  call: Call,
  nameOrId: string,
  orDefault: boolean,
): Promise<ImageView> {
  const workspaceId = workspaceOf(call);
  const image = await store.images.find(nameOrId, workspaceId);
  if (image) return image;
  let found = await store.images.findByName(nameOrId, workspaceId);
  const colon = nameOrId.lastIndexOf(":");
  if (found.length === 0 && colon > 0) {
    found = await store.images.findByName(nameOrId.slice(0, colon), workspaceId, nameOrId.slice(colon + 1));
  }
  const [named = orDefault ? await findDefault(store, workspaceId) : undefined, another] = found;
  if (named === undefined) throw new DomainError("IMAGE_NOT_FOUND", "There is no image of this name.");
  if (another === undefined) return named;
  throw new DomainError("CONFLICT", `More than one image has the name ${nameOrId}.`, {
    hint: "Use the image's id: GET /sandbox-images lists all of them.",
  });
}

async function findDefault({ images }: ImageRegistryStore, workspaceId: string): Promise<ImageView | undefined> {
  let oldest: ImageView | undefined;
  for (let after: ImageView | undefined; ; ) {
    const page = await images.list({ workspaceId, enabledOnly: true }, after, pageSize);
    oldest = page.findLast(isGlobalDefault) ?? oldest;
    after = page.at(-1);
    if (page.length < pageSize) return oldest;
  }
}

/**
 * Creates the global default image of the setting at the first start. At later ones the image of its name follows the
 * setting, and sandboxes keep what they were made from; where none has its name, nothing changes.
 */
export async function keepDefaultImage({ images }: ImageRegistryStore, setting: ImageFields): Promise<void> {
  const image = newImage(setting, "");
  await images.createDefault(image, [imageCreated(undefined, image)]);
  await retryWhileStale(async () => {
    const named = await images.findByName(setting.name, "");
    const records = named.map(({ registryName: _, ...record }) => record);
    const changed = followSetting(records, setting, new Date());
    return changed ? images.update(changed, undefined, [imageUpdated(undefined, changed)]) : "done";
  });
}

/** @param recordOf the idempotency record of the response with this image */
export async function createImage(
  { store, settings: { quotas } }: { store: ImageRegistryStore; settings: { quotas: Quotas } },
  call: Call,
  image: ImageRecord,
  recordOf: (image: ImageView) => Promise<IdempotencyRecord | undefined>,
): Promise<ImageView> {
  return retryWhileStale(async () => {
    const registry = await findRegistryOf(store, call, image);
    const view = { ...image, registryName: registry?.name };
    const events = [imageCreated(call, image)];
    const version = registry && versionOf(registry);
    const outcome = await store.images.create(image, version, quotas, events, await recordOf(view));
    if (outcome === "workspace_deleted") throw workspaceDeleted();
    if (outcome === "too_many") throw tooManyImages(quotas);
    return outcome === "done" ? view : outcome;
  });
}

export async function updateImage(
  { store, settings }: { store: ImageRegistryStore; settings: { allowedHosts: AllowedHosts } },
  call: Call,
  request: UpdateImageRequest,
): Promise<ImageView> {
  return retryWhileStale(async () => {
    const { registryName: _, ...before } = await findOwnImage(store, call, request.imageId);
    const fields = readChangedImage(before, request, settings.allowedHosts);
    const image = { ...before, ...fields, updatedAt: new Date() };
    const registry = await findRegistryOf(store, call, image);
    const outcome = await store.images.update(image, registry && versionOf(registry), [imageUpdated(call, image)]);
    return outcome === "done" ? { ...image, registryName: registry?.name } : outcome;
  });
}

export async function deleteImage(store: ImageRegistryStore, call: Call, imageId: string): Promise<void> {
  await retryWhileStale(async () => {
    const image = await findOwnImage(store, call, imageId);
    return store.images.delete(imageId, image.version, [imageDeleted(call, image)]);
  });
}

/** An image that the call's workspace may change. */
async function findOwnImage(store: ImageRegistryStore, call: Call, imageId: string): Promise<ImageView> {
  const image = await findImage(store, call, imageId);
  if (isGlobalDefault(image)) {
    throw new DomainError("IMAGE_IMMUTABLE", "A global default image can't be changed.", {
      hint: "Register an image of your own with POST /sandbox-images.",
    });
  }
  return image;
}

/** The registry credential that the image names, checked to be for the registry that the image is at. */
async function findRegistryOf(
  store: ImageRegistryStore,
  call: Call,
  image: ImageRecord,
): Promise<RegistryRecord | undefined> {
  if (image.registryId === undefined) return undefined;
  const registry = await findRegistry(store, call, image.registryId);
  checkRegistryHost(image, addressOf(registry));
  return registry;
}

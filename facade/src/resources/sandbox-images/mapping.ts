import type { Image } from "@sandgate/proto/imageregistry/v1/image_registry";
import type { Static } from "typebox";
import { opaqueId, present } from "../../pipeline/contract.ts";
import { toIsoMillis } from "../../pipeline/times.ts";
import type * as schemas from "./schemas.ts";

export function toImage(image: Image): Static<typeof schemas.Image> {
  return {
    id: image.id,
    name: image.name,
    image: image.image,
    description: image.description ?? null,
    tag: image.tag,
    enabled: image.enabled,
    is_default: image.isDefault,
    memory_mb: image.memoryMb,
    created_at: toIsoMillis(present(image.createdAt)),
    updated_at: toIsoMillis(present(image.updatedAt)),
    readiness_port: image.readinessPort ?? null,
    ttl_seconds: image.ttlSeconds ?? null,
    workspace_id: image.workspaceId || null,
    registry_id: image.registryId || null,
    registry_name: image.registryName || null,
  };
}

/** The id of an image as the contract accepts it. */
export function imageIdOf(id: string): string {
  return opaqueId(id, "IMAGE_NOT_FOUND", "The workspace has no such image.");
}

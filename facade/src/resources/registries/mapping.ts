import type { Registry } from "@sandgate/proto/imageregistry/v1/image_registry";
import type { Static } from "typebox";
import { opaqueId, present } from "../../pipeline/contract.ts";
import { toIsoMillis } from "../../pipeline/times.ts";
import type * as schemas from "./schemas.ts";

export function toRegistry(registry: Registry): Static<typeof schemas.Registry> {
  return {
    id: registry.id,
    name: registry.name,
    url: registry.url,
    username: registry.username,
    workspace_id: registry.workspaceId,
    created_at: toIsoMillis(present(registry.createdAt)),
    updated_at: toIsoMillis(present(registry.updatedAt)),
  };
}

/** The id of a registry credential as the contract accepts it. */
export function registryIdOf(id: string): string {
  return opaqueId(id, "REGISTRY_NOT_FOUND", "The workspace has no such registry credential.");
}

import { RegistrySchema } from "@sandgate/proto/imageregistry/v1/image_registry";
import { opaqueId } from "../../pipeline/contract.ts";
import { createMapper } from "../../pipeline/mapper.ts";
import * as schemas from "./schemas.ts";

export const toRegistry = createMapper(RegistrySchema, schemas.Registry, {});

/** The id of a registry credential as the contract accepts it. */
export function registryIdOf(id: string): string {
  return opaqueId(id, "REGISTRY_NOT_FOUND", "The workspace has no such registry credential.");
}

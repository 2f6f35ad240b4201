import {
  CreateRegistryRequestSchema,
  RegistrySchema,
  UpdateRegistryRequestSchema,
} from "@sandgate/proto/imageregistry/v1/image_registry";
import { opaqueId } from "../../pipeline/messages/contract.ts";
import { createMapper } from "../../pipeline/messages/mapper.ts";
import { createRequestMapper } from "../../pipeline/messages/request-mapper.ts";
import * as schemas from "./schemas.ts";

export const toRegistry = createMapper(RegistrySchema, schemas.Registry, {});
export const fromCreateBody = createRequestMapper(CreateRegistryRequestSchema, schemas.CreateRegistryBody);
export const fromUpdateBody = createRequestMapper(UpdateRegistryRequestSchema, schemas.UpdateRegistryBody);

/** The id of a registry credential as the contract accepts it. */
export function registryIdOf(id: string): string {
  return opaqueId(id, "REGISTRY_NOT_FOUND", "The workspace has no such registry credential.");
}

import {
  CreateImageRequestSchema,
  ImageSchema,
  UpdateImageRequestSchema,
} from "@sandgate/proto/imageregistry/v1/image_registry";
import { opaqueId } from "../../pipeline/messages/contract.ts";
import { createMapper } from "../../pipeline/messages/mapper.ts";
import { createRequestMapper } from "../../pipeline/messages/request-mapper.ts";
import * as schemas from "./schemas.ts";

export const toImage = createMapper(ImageSchema, schemas.Image, {});
export const fromCreateBody = createRequestMapper(CreateImageRequestSchema, schemas.CreateImageBody);
export const fromUpdateBody = createRequestMapper(UpdateImageRequestSchema, schemas.UpdateImageBody);

/** The id of an image as the contract accepts it. */
export function imageIdOf(id: string): string {
  return opaqueId(id, "IMAGE_NOT_FOUND", "The workspace has no such image.");
}

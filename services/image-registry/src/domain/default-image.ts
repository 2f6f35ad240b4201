import { create } from "@bufbuild/protobuf";
import { CreateImageRequestSchema } from "@sandgate/proto/imageregistry/v1/image_registry";
import type { AllowedHosts } from "@sandgate/registry-client/allowed-hosts";
import { type ImageFields, readNewImage } from "./images.ts";

/**
 * Reads SANDGATE_DEFAULT_IMAGE: `name=reference`, or `name=reference,port` for one that is probed over HTTP. Throws for
 * any other text.
 */
export function readDefaultImage(text: string, allowed: AllowedHosts): ImageFields {
  const [, name, image, port] = /^([^=]{1,100})=([^,]+)(?:,(\d{1,5}))?$/.exec(text) ?? [];
  const readinessPort = port === undefined ? undefined : Number(port);
  const isPort = readinessPort === undefined || (readinessPort >= 1 && readinessPort <= 65_535);
  if (name === undefined || image === undefined || !isPort) {
    throw new Error(`must be name=reference or name=reference,port, not "${text}"`);
  }
  const request = create(CreateImageRequestSchema, {
    name,
    image,
    isDefault: true,
    ...(readinessPort !== undefined && { readinessPort }),
  });
  return readNewImage(request, allowed);
}

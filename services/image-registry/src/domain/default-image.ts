import { create } from "@bufbuild/protobuf";
import { CreateImageRequestSchema } from "@sandgate/proto/imageregistry/v1/image_registry";
import type { AllowedHosts } from "@sandgate/registry-client/allowed-hosts";
import { type ImageFields, type ImageRecord, readNewImage } from "./images.ts";

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

/**
 * What the oldest of the global defaults that have the setting's name becomes: it takes over the image and the port, all
 * that the setting says. Undefined: nothing changes.
 */
export function followSetting(
  named: readonly ImageRecord[],
  { image, tag, readinessPort }: ImageFields,
  now: Date,
): ImageRecord | undefined {
  const [oldest] = named.toSorted((a, b) => a.createdAt.getTime() - b.createdAt.getTime());
  if (!oldest) return undefined;
  const isSame = oldest.image === image && oldest.tag === tag && oldest.readinessPort === readinessPort;
  return isSame ? undefined : { ...oldest, image, tag, readinessPort, updatedAt: now };
}

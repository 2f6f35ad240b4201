import { isUuid } from "@sandgate/kit/base/ids";
import { HostHeader, type Preview as PreviewMessage, PreviewSchema } from "@sandgate/proto/sandbox/v1/previews";
import type { Static } from "typebox";
import { createMapper } from "../../pipeline/messages/mapper.ts";
import { sandboxIdOf } from "../sandboxes/mapping.ts";
import * as schemas from "./schemas.ts";

const hostHeaders: Record<schemas.HostHeaderName, HostHeader> = {
  preview: HostHeader.PREVIEW,
  localhost: HostHeader.LOCALHOST,
};

export function fromHostHeader(name: schemas.HostHeaderName): HostHeader {
  return hostHeaders[name];
}

/** Makes the public record of a preview, whose address `urlOf` tells by its label. */
export function createPreviewMapper(urlOf: (label: string) => string) {
  return createMapper(PreviewSchema, schemas.Preview, {
    url: ({ label }) => urlOf(label),
    host_header: ({ hostHeader }: PreviewMessage) => (hostHeader === HostHeader.LOCALHOST ? "localhost" : "preview"),
  });
}

/** Nobody's. */
const noPreview = "00000000-0000-0000-0000-000000000000";

/** The sandbox and the preview of a path as the contract accepts them. The service says whether they exist. */
export function idsOf({ sandbox_id, preview_id }: Static<typeof schemas.PreviewParams>) {
  const id = preview_id.toLowerCase();
  return { sandbox: sandboxIdOf(sandbox_id), previewId: isUuid(id) ? id : noPreview };
}

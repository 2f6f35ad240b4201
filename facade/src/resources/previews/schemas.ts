import { CreatePreviewLinkRequestSchema, CreatePreviewRequestSchema } from "@sandgate/proto/sandbox/v1/previews";
import { Type } from "typebox";
import { component, Id, Moment } from "../../pipeline/validation/common-schemas.ts";
import { fieldSchema } from "../../pipeline/validation/field-schema.ts";
import { SandboxParams } from "../sandboxes/schemas.ts";

const hostHeaders = ["preview", "localhost"] as const;
export type HostHeaderName = (typeof hostHeaders)[number];

const port = fieldSchema(CreatePreviewRequestSchema, "port", {
  description: "Of the server in the sandbox.",
  examples: [3000],
});
const isPublic = Type.Boolean({ description: "Whether it opens without a token." });
const hostHeader = Type.Unsafe<HostHeaderName>({
  title: "HostHeader",
  type: "string",
  enum: [...hostHeaders],
  description: "The Host header that the server gets: the preview's own host, or `localhost:<port>`.",
});

export const CreatePreviewBody = component(
  "CreatePreview",
  {
    port,
    ttl_seconds: Type.Optional(
      fieldSchema(CreatePreviewRequestSchema, "ttl_seconds", {
        description: "How long it lives, at most as long as the sandbox. 3,600 by default.",
      }),
    ),
    public: Type.Optional(isPublic),
    host_header: Type.Optional(hostHeader),
  },
  { port: 3000 },
);

const preview = {
  id: Id,
  port,
  url: Type.String({ format: "uri", examples: ["https://k3x7q2m5p4n6r7s2t3u4v5w6x7.previews.example.com/"] }),
  public: isPublic,
  host_header: hostHeader,
  created_by: Id,
  created_at: Moment,
  expires_at: Moment,
};
export const Preview = component("Preview", preview);
export const CreatedPreview = component("CreatedPreview", {
  ...preview,
  token: Type.String({ description: "Opens it, as `X-Sandgate-Token`. Shown only in this response." }),
});
export const PreviewList = component("PreviewList", { previews: Type.Array(Preview) });
export const PreviewParams = Type.Object({ ...SandboxParams.properties, preview_id: Type.String() });

export const CreatePreviewLinkBody = component("CreatePreviewLink", {
  ttl_seconds: Type.Optional(
    fieldSchema(CreatePreviewLinkRequestSchema, "ttl_seconds", {
      description: "How long it may be opened, at most as long as the preview lives. 300 by default.",
    }),
  ),
});
export const PreviewLink = component("PreviewLink", {
  url: Type.String({ format: "uri", description: "Opens the preview once, in a browser." }),
  expires_at: Moment,
});

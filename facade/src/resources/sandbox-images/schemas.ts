import { PageRequestSchema } from "@sandgate/proto/common/v1/page";
import { CreateImageRequestSchema as Request } from "@sandgate/proto/imageregistry/v1/image_registry";
import { Type } from "typebox";
import {
  component,
  Id,
  Moment,
  NextCursor,
  NullableInteger,
  NullableText,
  nameIssue,
  nullable,
  Page,
  readOnly,
} from "../../pipeline/validation/common-schemas.ts";
import { fieldSchema } from "../../pipeline/validation/field-schema.ts";

const image = {
  name: fieldSchema(Request, "name", nameIssue),
  image: fieldSchema(Request, "image"),
  description: Type.Optional(nullable(fieldSchema(Request, "description"))),
  tag: Type.Optional(
    Type.String({
      pattern: "^[A-Za-z0-9_][A-Za-z0-9._-]{0,127}$",
      "x-issue": "must be an image tag: 1 to 128 letters, digits, dots, dashes and underscores",
      description: "By default the tag in `image`, otherwise `latest`.",
    }),
  ),
  enabled: Type.Optional(fieldSchema(Request, "enabled", { description: "True by default." })),
  is_default: Type.Optional(
    fieldSchema(Request, "is_default", { description: "Makes it a global default. For operators only." }),
  ),
  registry_id: Type.Optional(nullable(Type.String({ description: "The registry credential to pull with." }))),
  memory_mb: Type.Optional(fieldSchema(Request, "memory_mb", { description: "In MiB. 1024 by default." })),
  readiness_port: Type.Optional(
    nullable(
      fieldSchema(Request, "readiness_port", {
        description:
          "A sandbox is ready once `GET /` on this port answers 200 to 399 within 2 s. A redirect counts as such an " +
          "answer. On Kubernetes a redirect to the same host is followed, and the last answer counts. Without a port, a " +
          "sandbox is ready once a program can run in it.",
      }),
    ),
  ),
  ttl_seconds: Type.Optional(nullable(fieldSchema(Request, "ttl_seconds"))),
};
export const CreateImageBody = component("CreateImage", image, {
  name: "python",
  image: "docker.io/library/python:3.13-slim",
  memory_mb: 512,
  ttl_seconds: 3600,
});
export const UpdateImageBody = Type.Partial(Type.Object(image), { title: "UpdateImage" });
export const ImageParams = Type.Object({ image_id: Type.String() });
export const ImageQuery = Type.Object({
  enabled_only: Type.Boolean({ default: false }),
  limit: Type.Optional(fieldSchema(PageRequestSchema, "limit", { minimum: 1 })),
  cursor: Page.cursor,
});
export const Image = component("Image", {
  id: Id,
  name: Type.String(),
  image: Type.String(),
  description: NullableText,
  tag: Type.String(),
  enabled: Type.Boolean(),
  is_default: Type.Boolean(),
  memory_mb: Type.Integer(),
  created_at: Moment,
  updated_at: Moment,
  readiness_port: NullableInteger,
  ttl_seconds: NullableInteger,
  workspace_id: readOnly(NullableText),
  registry_id: NullableText,
  registry_name: readOnly(NullableText),
});
export const ImageList = component("ImageList", {
  images: Type.Array(Image),
  total: Type.Integer({ description: "The number of images on all pages together." }),
  next_cursor: NextCursor,
});

import { Type } from "typebox";
import {
  Id,
  Moment,
  Name,
  NextCursor,
  NullableInteger,
  NullableText,
  nullable,
  Page,
} from "../../pipeline/validation/schema-parts.ts";

const image = {
  name: Name,
  image: Type.String({ minLength: 1, maxLength: 255 }),
  description: Type.Optional(nullable(Type.String({ maxLength: 2000 }))),
  tag: Type.Optional(
    Type.String({
      pattern: "^[A-Za-z0-9_][A-Za-z0-9._-]{0,127}$",
      "x-issue": "must be an image tag: 1 to 128 letters, digits, dots, dashes and underscores",
      description: "By default the tag in `image`, otherwise `latest`.",
    }),
  ),
  enabled: Type.Optional(Type.Boolean({ description: "True by default." })),
  is_default: Type.Optional(Type.Boolean({ description: "Makes it a global default. For operators only." })),
  registry_id: Type.Optional(nullable(Type.String({ description: "The registry credential to pull with." }))),
  memory_mb: Type.Optional(Type.Integer({ minimum: 256, maximum: 8192, description: "In MiB. 1024 by default." })),
  readiness_port: Type.Optional(nullable(Type.Integer({ minimum: 1, maximum: 65_535 }))),
  ttl_seconds: Type.Optional(nullable(Type.Integer({ minimum: 60, maximum: 86_400 }))),
};
export const CreateImageBody = Type.Object(image);
export const UpdateImageBody = Type.Partial(Type.Object(image));
export const ImageParams = Type.Object({ image_id: Type.String() });
export const ImageQuery = Type.Object({
  enabled_only: Type.Boolean({ default: false }),
  limit: Type.Optional(Type.Integer({ minimum: 1, maximum: 500 })),
  cursor: Page.cursor,
});
export const Image = Type.Object({
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
  workspace_id: NullableText,
  registry_id: NullableText,
  registry_name: NullableText,
});
export const ImageList = Type.Object({
  images: Type.Array(Image),
  total: Type.Integer({ description: "The number of images on all pages together." }),
  next_cursor: NextCursor,
});

import type { RoleName } from "@sandgate/kit/rpc/context";
import { PageRequestSchema } from "@sandgate/proto/common/v1/page";
import { type Static, type TSchema, Type } from "typebox";
import { idempotencyKeyPattern } from "../base/request-context.ts";
import { fieldSchema } from "./field-schema.ts";

// Schemas that several resources share. The validator, the serializer and the OpenAPI document are derived from the
// schemas.

/** Allows null too. A list of types, because the serializer handles one without validating at run time. */
export function nullable<T extends TSchema & { type: string }>(schema: T) {
  return Type.Unsafe<Static<T> | null>({ ...schema, type: [schema.type, "null"] });
}

export const Id = Type.String();
/** What to tell a client whose name doesn't match the pattern of names. */
export const nameIssue = { "x-issue": "must not contain control characters" };
export const Moment = Type.String({ format: "date-time" });
export const NullableText = nullable(Type.String());
export const NullableInteger = nullable(Type.Integer());
export const NullableMoment = nullable(Moment);
/** Not Type.Record, whose pattern for names does not match those with a line break. */
export const TextByName = Type.Unsafe<Record<string, string>>({
  type: "object",
  additionalProperties: { type: "string" },
});
export const NextCursor = nullable(
  Type.String({ description: "Send it as `cursor` to get the next page; null on the last page." }),
);

export const Page = {
  limit: fieldSchema(PageRequestSchema, "limit", { minimum: 1, default: 100 }),
  cursor: Type.Optional(
    fieldSchema(PageRequestSchema, "cursor", { description: "The `next_cursor` of the page before." }),
  ),
};
export const PageQuery = Type.Object(Page);

const workspaceId = nullable(
  Type.String({ format: "uuid", description: "The workspace that the request belongs to." }),
);
const idempotencyKey = Type.String({
  pattern: idempotencyKeyPattern,
  "x-issue": "must be 1 to 255 printable characters",
  description: "A repeated request with the same key and the same body gets the first response again, for 24 hours.",
});
export const WorkspaceHeaders = Type.Object({ "x-workspace-id": Type.Optional(workspaceId) });
export const CreatingHeaders = Type.Object({ "idempotency-key": Type.Optional(idempotencyKey) });
export const CreatingInWorkspaceHeaders = Type.Object({
  ...WorkspaceHeaders.properties,
  ...CreatingHeaders.properties,
});
export const NoContent = Type.Null({ description: "Done. The response has no body." });
export const Success = Type.Object({ success: Type.Boolean() });

export const Role = Type.Unsafe<RoleName>({ type: "string", enum: ["member", "admin", "owner"] });

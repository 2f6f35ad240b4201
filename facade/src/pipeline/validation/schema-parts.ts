import type { RoleName } from "@sandgate/kit/rpc/context";
import { type Static, type TSchema, Type } from "typebox";
import { idempotencyKeyPattern } from "../base/request-context.ts";

// Schemas that several resources share. The validator, the serializer and the OpenAPI document are derived from the schemas.

/** Allows null too. A list of types, because the serializer handles one without validating at run time. */
export function nullable<T extends TSchema & { type: string }>(schema: T) {
  return Type.Unsafe<Static<T> | null>({ ...schema, type: [schema.type, "null"] });
}

export const Id = Type.String();
export const Name = Type.String({
  minLength: 1,
  maxLength: 100,
  pattern: "^[^\\x00-\\x1f\\x7f-\\x9f]*$",
  "x-issue": "must not contain control characters",
});
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
  limit: Type.Integer({ minimum: 1, maximum: 500, default: 100 }),
  cursor: Type.Optional(Type.String({ maxLength: 512, description: "The `next_cursor` of the page before." })),
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

import type { RoleName } from "@sandgate/kit/rpc/context";
import { PageRequestSchema } from "@sandgate/proto/common/v1/page";
import { type Static, type TObject, type TProperties, type TSchema, Type } from "typebox";
import { idempotencyKeyPattern } from "../base/request-context.ts";
import { fieldSchema } from "./field-schema.ts";

// Schemas that several resources share. The validator, the serializer and the OpenAPI document are derived from the
// schemas.

/** Allows null too. A list of types, because the serializer handles one without validating at run time. */
export function nullable<T extends TSchema & { type: string }>(schema: T) {
  return Type.Unsafe<Static<T> | null>({ ...schema, type: [schema.type, "null"] });
}

/** An object that is a component of the OpenAPI document, by this name, perhaps with an example. */
export function component<P extends TProperties>(title: string, properties: P, example?: object): TObject<P> {
  return Type.Object(properties, { title, ...(example && { examples: [example] }) });
}

/** A field of a record that clients can't set. A record that was read may be sent back with it. */
export function readOnly<T extends TSchema>(schema: T): T {
  return { ...schema, readOnly: true };
}

export const Id = readOnly(Type.String({ examples: ["019a2f3e-8d1c-7c3a-9d0e-2b6f4c1a7e55"] }));
/** What to tell a client whose name doesn't match the pattern of names. */
export const nameIssue = { "x-issue": "must not contain control characters" };
export const exampleMoment = "2026-01-31T12:00:00.000Z";
export const Moment = readOnly(Type.String({ format: "date-time", examples: [exampleMoment] }));
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
/** The headers of what can be repeated; the description says what a repetition does. */
export const idempotencyHeaders = (description: string) =>
  Type.Object({
    "idempotency-key": Type.Optional(
      Type.String({
        pattern: idempotencyKeyPattern,
        "x-issue": "must be 1 to 255 printable characters",
        description,
      }),
    ),
  });
export const WorkspaceHeaders = Type.Object({ "x-workspace-id": Type.Optional(workspaceId) });
export const CreatingHeaders = idempotencyHeaders(
  "A repeated request with the same key and the same body gets the first response again, for 24 hours.",
);
export const CreatingInWorkspaceHeaders = Type.Object({
  ...WorkspaceHeaders.properties,
  ...CreatingHeaders.properties,
});
export const NoContent = Type.Null({ description: "Done. The response has no body." });
export const Success = component("Success", { success: Type.Boolean() });

export const Role = Type.Unsafe<RoleName>({ title: "Role", type: "string", enum: ["member", "admin", "owner"] });

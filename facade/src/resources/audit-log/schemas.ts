import { type AuditAction, auditActions } from "@sandgate/kit/base/audit-actions";
import type { CredentialKind } from "@sandgate/kit/rpc/context";
import { AuditFilterSchema } from "@sandgate/proto/telemetry/v1/audit";
import { Type } from "typebox";
import {
  component,
  Id,
  Moment,
  NextCursor,
  NullableText,
  nullable,
  Page,
} from "../../pipeline/validation/common-schemas.ts";
import { fieldSchema } from "../../pipeline/validation/field-schema.ts";

export const AuditQuery = Type.Object({
  ...Page,
  action: Type.Optional(Type.Unsafe<AuditAction>({ type: "string", enum: [...auditActions] })),
  actor: Type.Optional(fieldSchema(AuditFilterSchema, "actor_id", { description: "The id of the user who did it." })),
  since: Type.Optional(Type.String({ format: "date-time", description: "Inclusive." })),
  until: Type.Optional(Type.String({ format: "date-time", description: "Exclusive." })),
});

const actor = nullable(component("AuditActor", { user_id: Id }));
const credential = nullable(
  component("AuditCredential", {
    type: Type.Unsafe<CredentialKind>({ type: "string", enum: ["session", "api_token"] }),
    id: Id,
  }),
);
const target = nullable(component("AuditTarget", { type: Type.String(), id: Type.String() }));

export const AuditEntry = component("AuditEntry", {
  id: Id,
  at: Moment,
  workspace_id: NullableText,
  actor: { ...actor, description: "Null when nobody was signed in, or the platform acted by itself." },
  credential,
  address: nullable(
    Type.String({ description: "The client's address. Null when the counted requests came from several." }),
  ),
  action: Type.String(),
  target,
  outcome: Type.String({ description: "`success`, or the error code of a refused request." }),
  request_id: nullable(Type.String({ description: "The id of the first request, if the entry stands for several." })),
  count: Type.Integer({
    description: "The number of requests: for a while, those like a recorded one are counted with it.",
  }),
});
export const AuditLog = component("AuditLog", { entries: Type.Array(AuditEntry), next_cursor: NextCursor });

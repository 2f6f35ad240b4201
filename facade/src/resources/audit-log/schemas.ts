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
const detail = (description: string) => Type.Optional(Type.String({ description }));
const target = nullable(
  component("AuditTarget", {
    type: Type.String(),
    id: Type.String(),
    process_id: detail("The process in the sandbox."),
    program: detail("The name of its program; of a command that is a string, `sh`."),
    path: detail("The path in the sandbox, of which 1,000 characters are kept."),
    to: detail("Where it was moved to."),
    preview_id: detail("The preview of one of the sandbox's ports."),
    port: detail("That port."),
    role: detail("The member's new role."),
  }),
);

export const AuditEntry = component("AuditEntry", {
  id: Id,
  at: Moment,
  workspace_id: NullableText,
  actor: { ...actor, description: "Null when nobody was signed in, or the platform acted by itself." },
  credential: { ...credential, description: "That of the first request, if the entry stands for several." },
  address: nullable(
    Type.String({ description: "The client's address. Null when the counted requests came from several." }),
  ),
  action: Type.String(),
  target,
  outcome: Type.String({
    description:
      "`success`, the error code of a refused request, or `upstream_error` if nobody knows whether it was done.",
  }),
  request_id: nullable(Type.String({ description: "The id of the first request, if the entry stands for several." })),
  count: Type.Integer({
    description:
      "The number of requests. Refused ones that are like a recorded one are counted with it for a while, and so are uses of a sandbox beyond 20 a minute.",
  }),
});
export const AuditLog = component("AuditLog", { entries: Type.Array(AuditEntry), next_cursor: NextCursor });

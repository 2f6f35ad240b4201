import { permissionNames } from "@sandgate/kit/rpc/access";
import type { PermissionName, RoleName } from "@sandgate/kit/rpc/context";
import { CreateApiTokenRequestSchema } from "@sandgate/proto/identity/v1/identity";
import { Type } from "typebox";
import { limitsOf } from "../../pipeline/messages/field-rules.ts";
import {
  component,
  Id,
  Moment,
  NextCursor,
  NullableMoment,
  NullableText,
  nullable,
  Role,
} from "../../pipeline/validation/common-schemas.ts";
import { fieldSchema } from "../../pipeline/validation/field-schema.ts";

const roleMeaning =
  "The highest role that the token has in any workspace, whatever your own. A token with a role never has an operator's rights.";
const TokenRole = Type.Unsafe<RoleName>({ ...Role, description: roleMeaning });
export const NullableRole = Type.Unsafe<RoleName | null>({
  title: "Role",
  type: ["string", "null"],
  enum: ["member", "admin", "owner", null],
  description: roleMeaning,
});
const permissionsMeaning =
  "Limits the token to part of what its role allows: `read` allows reading records, logs and the audit log; `provision` allows provisioning, waiting for, extending and stopping sandboxes; `use` allows commands and files in them; `manage` allows all else. None includes another. Without permissions the token may do all that its role allows.";
const Permission = Type.Unsafe<PermissionName>({ title: "Permission", type: "string", enum: [...permissionNames] });
export const NullablePermissions = nullable(Type.Array(Permission, { description: permissionsMeaning }));

export const CreateApiTokenBody = component(
  "CreateApiToken",
  {
    description: fieldSchema(CreateApiTokenRequestSchema, "description"),
    expires_at: Type.Optional(Type.String({ format: "date-time" })),
    workspace_id: Type.Optional(
      Type.String({
        description: "The only workspace in which the token works. Such a token never has operator rights.",
      }),
    ),
    role: Type.Optional(TokenRole),
    permissions: Type.Optional(
      Type.Array(Permission, {
        ...limitsOf(CreateApiTokenRequestSchema, "permissions"),
        minItems: 1,
        description: permissionsMeaning,
      }),
    ),
  },
  { description: "continuous integration", role: "member", permissions: ["provision", "use"] },
);
export const ApiTokenParams = Type.Object({ token: Type.String({ description: "The token itself or its id." }) });
export const CreatedApiToken = component("CreatedApiToken", {
  id: Id,
  token: Type.String({ description: "Shown only in this response." }),
  description: Type.String(),
  workspace_id: NullableText,
  role: NullableRole,
  permissions: NullablePermissions,
  expires_at: NullableMoment,
  created_at: Moment,
});
export const ApiToken = component("ApiToken", {
  id: Id,
  description: Type.String(),
  token_hint: Type.String(),
  workspace_id: NullableText,
  role: NullableRole,
  permissions: NullablePermissions,
  expires_at: NullableMoment,
  created_at: Moment,
  last_used_at: NullableMoment,
});
export const ApiTokenList = component("ApiTokenList", { api_tokens: Type.Array(ApiToken), next_cursor: NextCursor });

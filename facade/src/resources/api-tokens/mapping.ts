import { toPermissionNames, toRoleName } from "@sandgate/kit/rpc/access";
import { ApiTokenSchema } from "@sandgate/proto/identity/v1/identity";
import { createMapper } from "../../pipeline/messages/mapper.ts";
import * as schemas from "./schemas.ts";

export const toApiToken = createMapper(ApiTokenSchema, schemas.ApiToken, {
  role: ({ role }) => toRoleName(role) ?? null,
  permissions: ({ permissions }) => (permissions.length > 0 ? toPermissionNames(permissions) : null),
});

import { ListUsersRequestSchema } from "@sandgate/proto/identity/v1/identity";
import { ListAllSandboxesRequestSchema } from "@sandgate/proto/sandbox/v1/sandbox";
import { Type } from "typebox";
import { component, Id, Moment, NextCursor, Page, readOnly } from "../../pipeline/validation/common-schemas.ts";
import { fieldSchema } from "../../pipeline/validation/field-schema.ts";
import { StateList } from "../sandboxes/schemas.ts";

export const User = component("User", {
  id: Id,
  username: readOnly(Type.String()),
  verified: readOnly(Type.Boolean()),
  operator: readOnly(Type.Boolean()),
  enabled: Type.Boolean({ description: "A disabled user can't sign in, and the user's tokens are refused." }),
  created_at: Moment,
});
export const UserList = component("UserList", { users: Type.Array(User), next_cursor: NextCursor });
export const UserQuery = Type.Object({
  ...Page,
  username: Type.Optional(
    fieldSchema(ListUsersRequestSchema, "username", { description: "Only the user with this name." }),
  ),
});
export const UserParams = Type.Object({ user_id: Type.String() });
export const UpdateUserBody = component("UpdateUser", { enabled: Type.Boolean() });
export const AnySandboxQuery = Type.Object({
  ...Page,
  state: Type.Optional(StateList),
  workspace_id: Type.Optional(
    fieldSchema(ListAllSandboxesRequestSchema, "workspace_id", { description: "Only those of this workspace." }),
  ),
  user_id: Type.Optional(
    fieldSchema(ListAllSandboxesRequestSchema, "user_id", { description: "Only those that this user provisioned." }),
  ),
});
export const AnySandboxParams = Type.Object({ sandbox_id: Type.String({ description: "Its id." }) });

import { AddMemberRequestSchema } from "@sandgate/proto/workspace/v1/workspace";
import { Type } from "typebox";
import { component, Id, Moment, NextCursor, Role, readOnly } from "../../pipeline/validation/common-schemas.ts";
import { fieldSchema } from "../../pipeline/validation/field-schema.ts";
import { WorkspaceParams } from "../workspaces/schemas.ts";

export const MemberParams = Type.Object({ ...WorkspaceParams.properties, user_id: Type.String() });
export const AddMemberBody = component("AddMember", {
  username: fieldSchema(AddMemberRequestSchema, "username"),
  role: Role,
});
export const UpdateMemberBody = component("UpdateMember", { role: Role });
export const Member = component("Member", {
  user_id: Id,
  username: readOnly(Type.String()),
  role: Role,
  joined_at: Moment,
});
export const MemberList = component("MemberList", { members: Type.Array(Member), next_cursor: NextCursor });

import { AddMemberRequestSchema } from "@sandgate/proto/workspace/v1/workspace";
import { Type } from "typebox";
import { Id, Moment, NextCursor, Role } from "../../pipeline/validation/common-schemas.ts";
import { fieldSchema } from "../../pipeline/validation/field-schema.ts";
import { WorkspaceParams } from "../workspaces/schemas.ts";

export const MemberParams = Type.Object({ ...WorkspaceParams.properties, user_id: Type.String() });
export const AddMemberBody = Type.Object({ username: fieldSchema(AddMemberRequestSchema, "username"), role: Role });
export const UpdateMemberBody = Type.Object({ role: Role });
export const Member = Type.Object({ user_id: Id, username: Type.String(), role: Role, joined_at: Moment });
export const MemberList = Type.Object({ members: Type.Array(Member), next_cursor: NextCursor });

import { CreateWorkspaceRequestSchema } from "@sandgate/proto/workspace/v1/workspace";
import { Type } from "typebox";
import { Id, Moment, NextCursor, nameIssue, Role } from "../../pipeline/validation/common-schemas.ts";
import { fieldSchema } from "../../pipeline/validation/field-schema.ts";

export const WorkspaceParams = Type.Object({ workspace_id: Type.String({ format: "uuid" }) });
export const WorkspaceBody = Type.Object({ name: fieldSchema(CreateWorkspaceRequestSchema, "name", nameIssue) });
export const Workspace = Type.Object({
  id: Id,
  name: Type.String(),
  role: Role,
  created_at: Moment,
  updated_at: Moment,
});
export const WorkspaceList = Type.Object({ workspaces: Type.Array(Workspace), next_cursor: NextCursor });

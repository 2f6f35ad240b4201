import { Type } from "typebox";
import { Id, Moment, Name, NextCursor, Role } from "../../pipeline/validation/schema-parts.ts";

export const WorkspaceParams = Type.Object({ workspace_id: Type.String({ format: "uuid" }) });
export const WorkspaceBody = Type.Object({ name: Name });
export const Workspace = Type.Object({
  id: Id,
  name: Type.String(),
  role: Role,
  created_at: Moment,
  updated_at: Moment,
});
export const WorkspaceList = Type.Object({ workspaces: Type.Array(Workspace), next_cursor: NextCursor });

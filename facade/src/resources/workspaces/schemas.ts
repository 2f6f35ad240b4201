import { CreateWorkspaceRequestSchema } from "@sandgate/proto/workspace/v1/workspace";
import { Type } from "typebox";
import {
  component,
  Id,
  Moment,
  NextCursor,
  nameIssue,
  Role,
  readOnly,
} from "../../pipeline/validation/common-schemas.ts";
import { fieldSchema } from "../../pipeline/validation/field-schema.ts";

export const WorkspaceParams = Type.Object({ workspace_id: Type.String({ format: "uuid" }) });
export const WorkspaceBody = component("WorkspaceFields", {
  name: fieldSchema(CreateWorkspaceRequestSchema, "name", nameIssue),
});
export const Workspace = component("Workspace", {
  id: Id,
  name: Type.String(),
  role: readOnly(Role),
  created_at: Moment,
  updated_at: Moment,
});
export const WorkspaceList = component("WorkspaceList", {
  workspaces: Type.Array(Workspace),
  next_cursor: NextCursor,
  default_workspace_id: Type.Union([Id, Type.Null()], {
    description:
      "Where clients work unless a workspace is named: the one that a token is bound to, else the oldest that you own and that counts towards your quotas, at first the personal one. Nobody else can choose it for you. Null when there is none.",
  }),
});

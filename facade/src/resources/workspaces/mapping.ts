import { toRoleName } from "@sandgate/kit/rpc/access";
import { WorkspaceSchema } from "@sandgate/proto/workspace/v1/workspace";
import { createMapper } from "../../pipeline/messages/mapper.ts";
import * as schemas from "./schemas.ts";

export const toWorkspace = createMapper(WorkspaceSchema, schemas.Workspace, {
  role: ({ role }) => toRoleName(role) ?? "member",
});

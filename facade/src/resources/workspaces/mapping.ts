import { toRoleName } from "@sandgate/kit/rpc/access";
import type { RoleName } from "@sandgate/kit/rpc/context";
import type { Workspace } from "@sandgate/proto/workspace/v1/workspace";
import type { Static } from "typebox";
import { present } from "../../pipeline/contract.ts";
import { toIsoMillis } from "../../pipeline/times.ts";
import type * as schemas from "./schemas.ts";

export function toWorkspace(workspace: Workspace, role?: RoleName): Static<typeof schemas.Workspace> {
  return {
    id: workspace.id,
    name: workspace.name,
    role: toRoleName(workspace.role) ?? role ?? "member",
    created_at: toIsoMillis(present(workspace.createdAt)),
    updated_at: toIsoMillis(present(workspace.updatedAt)),
  };
}

import { create } from "@bufbuild/protobuf";
import { timestampFromDate } from "@bufbuild/protobuf/wkt";
import { type Member, MemberSchema, type Workspace, WorkspaceSchema } from "@sandgate/proto/workspace/v1/workspace";
import type { MemberRecord, WorkspaceView } from "./store/store.ts";

export function toWorkspace({ id, name, role, createdAt, updatedAt }: WorkspaceView): Workspace {
  return create(WorkspaceSchema, {
    id,
    name,
    role,
    createdAt: timestampFromDate(createdAt),
    updatedAt: timestampFromDate(updatedAt),
  });
}

export function toMember({ userId, role, joinedAt }: MemberRecord, username: string): Member {
  return create(MemberSchema, { userId, username, role, joinedAt: timestampFromDate(joinedAt) });
}

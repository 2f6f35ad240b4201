import { timestampFromDate } from "@bufbuild/protobuf/wkt";
import { createMessage } from "@sandgate/kit/rpc/messages";
import { type Member, MemberSchema, type Workspace, WorkspaceSchema } from "@sandgate/proto/workspace/v1/workspace";
import type { MemberRecord, WorkspaceView } from "./store/store.ts";

export function toWorkspace({ id, name, role, createdAt, updatedAt }: WorkspaceView): Workspace {
  return createMessage(WorkspaceSchema, {
    id,
    name,
    role,
    createdAt: timestampFromDate(createdAt),
    updatedAt: timestampFromDate(updatedAt),
  });
}

export function toMember({ userId, role, joinedAt }: MemberRecord, username: string): Member {
  return createMessage(MemberSchema, { userId, username, role, joinedAt: timestampFromDate(joinedAt) });
}

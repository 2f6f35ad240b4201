import { createMessage } from "@sandgate/kit/rpc/messages";
import {
  type Member,
  MemberSchema,
  type QuotaOwner,
  QuotaOwnerSchema,
  type Workspace,
  WorkspaceSchema,
} from "@sandgate/proto/workspace/v1/workspace";
import type { MemberRecord } from "./domain/members.ts";
import type { WorkspaceQuotaOwner } from "./domain/quota-owners.ts";
import type { WorkspaceView } from "./domain/workspaces.ts";

export function toWorkspace(workspace: WorkspaceView): Workspace {
  return createMessage(WorkspaceSchema, workspace);
}

export function toQuotaOwner(owner: WorkspaceQuotaOwner): QuotaOwner {
  return createMessage(QuotaOwnerSchema, { ...owner, since: BigInt(owner.since) });
}

export function toMember(member: MemberRecord, username: string): Member {
  return createMessage(MemberSchema, { ...member, username });
}

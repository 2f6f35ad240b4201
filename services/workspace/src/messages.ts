import { createMessage } from "@sandgate/kit/rpc/messages";
import {
  type Charge,
  ChargeSchema,
  type Member,
  MemberSchema,
  type Workspace,
  WorkspaceSchema,
} from "@sandgate/proto/workspace/v1/workspace";
import type { MemberRecord, WorkspaceCharge, WorkspaceView } from "./store/store.ts";

export function toWorkspace(workspace: WorkspaceView): Workspace {
  return createMessage(WorkspaceSchema, workspace);
}

export function toCharge(charge: WorkspaceCharge): Charge {
  return createMessage(ChargeSchema, { ...charge, since: BigInt(charge.since) });
}

export function toMember(member: MemberRecord, username: string): Member {
  return createMessage(MemberSchema, { ...member, username });
}

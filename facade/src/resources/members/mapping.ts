import { toRoleName } from "@sandgate/kit/rpc/access";
import type { Member } from "@sandgate/proto/workspace/v1/workspace";
import type { Static } from "typebox";
import { opaqueId, present } from "../../pipeline/contract.ts";
import { toIsoMillis } from "../../pipeline/times.ts";
import type * as schemas from "./schemas.ts";

export function toMember(member: Member): Static<typeof schemas.Member> {
  return {
    user_id: member.userId,
    username: member.username,
    role: toRoleName(member.role) ?? "member",
    joined_at: toIsoMillis(present(member.joinedAt)),
  };
}

/** The id of a member as the contract accepts it. */
export function memberIdOf(id: string): string {
  return opaqueId(id, "MEMBER_NOT_FOUND", "The workspace has no such member.");
}

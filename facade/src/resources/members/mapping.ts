import { toRoleName } from "@sandgate/kit/rpc/access";
import type { Member } from "@sandgate/proto/workspace/v1/workspace";
import type { Static } from "typebox";
import { present } from "../../pipeline/contract.ts";
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

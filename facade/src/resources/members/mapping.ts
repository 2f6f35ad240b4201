import { toRoleName } from "@sandgate/kit/rpc/access";
import { MemberSchema } from "@sandgate/proto/workspace/v1/workspace";
import { opaqueId } from "../../pipeline/messages/contract.ts";
import { createMapper } from "../../pipeline/messages/mapper.ts";
import * as schemas from "./schemas.ts";

export const toMember = createMapper(MemberSchema, schemas.Member, {
  role: ({ role }) => toRoleName(role) ?? "member",
});

/** The id of a member as the contract accepts it. */
export function memberIdOf(id: string): string {
  return opaqueId(id, "MEMBER_NOT_FOUND", "The workspace has no such member.");
}

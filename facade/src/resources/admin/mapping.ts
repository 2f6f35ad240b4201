import { UserSchema } from "@sandgate/proto/identity/v1/identity";
import { opaqueId } from "../../pipeline/messages/contract.ts";
import { createMapper } from "../../pipeline/messages/mapper.ts";
import * as schemas from "./schemas.ts";

export const toUser = createMapper(UserSchema, schemas.User, { enabled: ({ disabled }) => !disabled });

/** The id of a user as the contract accepts it. */
export function userIdOf(id: string): string {
  return opaqueId(id, "NOT_FOUND", "There is no such user.");
}

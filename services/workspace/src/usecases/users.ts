import type { Transport } from "@connectrpc/connect";
import { DomainError } from "@sandgate/kit/base/domain-error";
import { type Call, onBehalfOf } from "@sandgate/kit/rpc/context";
import { createClient } from "@sandgate/kit/rpc/create-client";
import { IdentityService, type User } from "@sandgate/proto/identity/v1/identity";

/** Users as identity knows them: clients name members by their user names. */
export interface Users {
  /** User names by id; deleted users are missing. */
  findUsernames(call: Call, userIds: string[]): Promise<Map<string, string>>;
  /** Throws MEMBER_NOT_FOUND. Ask only for a caller who may add members: others must not learn who is registered. */
  findVerified(call: Call, username: string): Promise<User>;
}

export function createUsers(transport: Transport): Users {
  const identity = createClient(IdentityService, transport);
  return {
    async findUsernames(call, userIds) {
      const { users } = await identity.batchGetUsers({ userIds }, onBehalfOf(call));
      return new Map(users.map((user) => [user.id, user.username]));
    },

    async findVerified(call, username) {
      const { users } = await identity.batchGetUsers({ usernames: [username] }, onBehalfOf(call));
      const user = users.find(({ verified }) => verified);
      if (user === undefined) {
        throw new DomainError("MEMBER_NOT_FOUND", "There is no verified user with this name.", {
          hint: "Ask them to register first, and to follow the link in the verification mail.",
        });
      }
      return user;
    },
  };
}

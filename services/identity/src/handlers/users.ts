import type { ServiceImpl } from "@connectrpc/connect";
import { readPage } from "@sandgate/kit/base/page";
import { callOf } from "@sandgate/kit/rpc/context";
import type { IdentityService } from "@sandgate/proto/identity/v1/identity";
import { toUser } from "../messages.ts";
import type { LookUpNames } from "../usecases/name-lookups.ts";
import type { UserAdministration } from "../usecases/user-administration.ts";

/** Answers what operators ask of users and do to them, and what services look up. */
export function createUserHandlers(o: { administration: UserAdministration; lookUpNames: LookUpNames }) {
  const { administration, lookUpNames } = o;
  return {
    async listUsers({ page, username }) {
      const name = username || undefined;
      const { rows, nextCursor } = await readPage(page, (limit, after) => administration.list(name, limit, after));
      return { users: rows.map(toUser), nextCursor };
    },

    async batchGetUsers({ userIds, usernames }, context) {
      const { user } = callOf(context);
      const users =
        user && usernames.length > 0
          ? [...(await administration.find(userIds, [])), ...(await lookUpNames(usernames, user.id))]
          : await administration.find(userIds, usernames);
      return { users: users.map(toUser) };
    },

    async setUserDisabled({ userId, disabled }, context) {
      return { user: toUser(await administration.setDisabled(callOf(context), userId, disabled)) };
    },

    async deleteUser({ userId }, context) {
      await administration.delete(callOf(context), userId);
      return {};
    },

    async endUserSessions({ userId }, context) {
      await administration.endSessions(callOf(context), userId);
      return {};
    },

    async revokeUserApiTokens({ userId }, context) {
      await administration.revokeApiTokens(callOf(context), userId);
      return {};
    },
  } satisfies Partial<ServiceImpl<typeof IdentityService>>;
}

import { deleteBatch, type MongoDatabase, type MongoTransaction } from "@sandgate/kit/storage/mongo";
import type { AccountState } from "../domain/accounts.ts";
import type { Accounts } from "./accounts.ts";
import { type Collections, collectionsOf } from "./collections.mongo.ts";

/**
 * Reads the account of a user whom the transaction makes a member or a quota owner. It writes the account too, so that
 * such transactions take turns.
 *
 * @param maxOwned the user's quota of workspaces
 */
export async function lockAccount(
  { accounts, workspaces }: Collections,
  { session }: MongoTransaction,
  userId: string,
  maxOwned = 0,
): Promise<AccountState> {
  const account = await accounts.findOneAndUpdate(
    { _id: userId },
    { $inc: { joins: 1 } },
    { upsert: true, returnDocument: "after", session },
  );
  return {
    deleted: account?.departedAt !== undefined,
    hadPersonalWorkspace: account?.hadPersonalWorkspace === true,
    owned: maxOwned && (await workspaces.countDocuments({ chargedTo: userId }, { session, limit: maxOwned })),
  };
}

export function createAccounts({ db }: MongoDatabase): Accounts {
  const { accounts } = collectionsOf(db);
  return {
    async hadPersonalWorkspace(userId) {
      return (await accounts.findOne({ _id: userId }))?.hadPersonalWorkspace === true;
    },

    async markDeleted(userId, at) {
      const departed = [{ $set: { departedAt: { $ifNull: ["$departedAt", at] } } }];
      await accounts.updateOne({ _id: userId }, departed, { upsert: true });
    },

    forgetDeletedBefore: (before, limit) => deleteBatch(accounts, { departedAt: { $lt: before } }, limit),
  };
}

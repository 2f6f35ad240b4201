import type { MongoDatabase, MongoTransaction } from "@sandgate/kit/storage/mongo";
import { decideExternalUser, type ExternalUserChange } from "../domain/single-sign-on.ts";
import { collectionsOf } from "./collections.mongo.ts";
import { removeAt } from "./expiry.mongo.ts";
import { addMail } from "./mails.mongo.ts";
import { setPassword } from "./passwords.mongo.ts";
import type { SingleSignOn } from "./single-sign-on.ts";
import { insertUser, markVerified, readAccount } from "./users.mongo.ts";

export function createSingleSignOn({ db, write }: MongoDatabase): SingleSignOn {
  const collections = collectionsOf(db);
  const { ssoAttempts, externalIdentities } = collections;

  async function linkUser(
    tx: MongoTransaction,
    _id: string,
    { userId, created, takesOver, noticeMail, events }: ExternalUserChange,
    now: Date,
  ): Promise<string[]> {
    const { session } = tx;
    // There may be one of a user who was deleted while a link was added.
    const link = { userId, createdAt: now.getTime() };
    await externalIdentities.updateOne({ _id }, { $set: link }, { upsert: true, session });
    if (created) await insertUser(collections, tx, created);
    if (noticeMail) await addMail(collections, tx, userId, noticeMail, now);
    await tx.publish(events);
    if (!takesOver) return [];
    await markVerified(collections, tx, userId, now);
    return setPassword(collections, tx, userId, undefined, now);
  }

  return {
    async addAttempt({ stateHash, expiresAt, ...attempt }) {
      await ssoAttempts.insertOne({
        _id: stateHash,
        ...attempt,
        expiresAt: expiresAt.getTime(),
        removeAt: removeAt("ssoAttempts", expiresAt),
      });
    },

    async takeAttempt({ stateHash, browserHash, provider }, now) {
      const own = { _id: stateHash, browserHash, provider, expiresAt: { $gt: now.getTime() } };
      const taken = await ssoAttempts.findOneAndDelete(own);
      return taken ? { redirectUri: taken.redirectUri } : undefined;
    },

    resolveUser: (identity, first, now) =>
      write(async (tx) => {
        const { issuer, subject, name } = identity;
        const _id = `${issuer} ${subject}`;
        const link = await externalIdentities.findOne({ _id }, { session: tx.session });
        const linked = link && (await readAccount(collections, { id: link.userId }, tx));
        const holder = linked || !name ? undefined : (await readAccount(collections, name, tx))?.user;
        const decided = decideExternalUser({ linkedUserId: linked?.user.id, holder }, identity, first, now);
        if (typeof decided === "string") return decided;
        const { userId, change } = decided;
        return { userId, endedSessionIds: change ? await linkUser(tx, _id, change, now) : [] };
      }),
  };
}

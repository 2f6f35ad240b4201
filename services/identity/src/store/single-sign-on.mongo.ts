import { toOptionalDate } from "@sandgate/kit/base/time";
import type { MongoDatabase, MongoTransaction } from "@sandgate/kit/storage/mongo";
import { recentSignInStart } from "../domain/sessions.ts";
import {
  decideExternalUser,
  decideUnlink,
  type ExternalIdentity,
  type ExternalUserChange,
  identityId,
  isLinkGuarded,
  type LinkedIdentity,
} from "../domain/single-sign-on.ts";
import { usernameKey } from "../domain/users.ts";
import { collectionsOf, linkKey } from "./collections.mongo.ts";
import { removeAt } from "./expiry.mongo.ts";
import { addMail } from "./mails.mongo.ts";
import { setPassword } from "./passwords.mongo.ts";
import { endSessionsOf } from "./sessions.mongo.ts";
import type { SingleSignOn } from "./single-sign-on.ts";
import { insertUser, markVerified, readAccount } from "./users.mongo.ts";

export function createSingleSignOn({ db, write }: MongoDatabase): SingleSignOn {
  const collections = collectionsOf(db);
  const { users, sessions, secondFactors, ssoAttempts, externalIdentities, removedIdentities } = collections;

  async function linkUser(
    tx: MongoTransaction,
    identity: ExternalIdentity,
    { userId, created, takesOver, noticeMail, events }: ExternalUserChange,
    now: Date,
  ): Promise<string[]> {
    const { session } = tx;
    const _id = linkKey(identity);
    const at = now.getTime();
    const { provider, name } = identity;
    // There may be one of a user who was deleted while a link was added.
    const link = { userId, provider, ...(name && { username: name.username }), createdAt: at, lastUsedAt: at };
    await externalIdentities.updateOne({ _id }, { $set: link }, { upsert: true, session });
    await removedIdentities.deleteOne({ _id: `${userId} ${_id}` }, { session });
    if (created) await insertUser(collections, tx, created);
    if (noticeMail) await addMail(collections, tx, userId, noticeMail, now);
    await tx.publish(events);
    if (!takesOver) return [];
    await markVerified(collections, tx, userId, now);
    return setPassword(collections, tx, userId, undefined, now);
  }

  async function readHolder(tx: MongoTransaction, name: { usernameKey: string }, link: string, now: Date) {
    const { session } = tx;
    const user = (await readAccount(collections, name, tx))?.user;
    if (!user) return undefined;
    const { id: userId } = user;
    const enabled = { userId, enabledAt: { $exists: true } };
    const isGuarded = isLinkGuarded({
      secondFactor: (await secondFactors.findOne(enabled, { session, projection: { _id: 1 } })) !== null,
      hasRemovedLink: (await removedIdentities.findOne({ _id: `${userId} ${link}` }, { session })) !== null,
    });
    if (!isGuarded) return { ...user, signedInAt: undefined };
    const recent = { userId, endedAt: { $exists: false }, createdAt: { $gt: recentSignInStart(now).getTime() } };
    const found = await sessions.find(recent, { session, projection: { address: 1 } }).toArray();
    return { ...user, signedInAt: found.map(({ address }) => address) };
  }

  /** The links of a user, newest first. */
  async function readLinks(userId: string, tx?: MongoTransaction): Promise<(LinkedIdentity & { key: string })[]> {
    const options = tx && { session: tx.session };
    const found = await externalIdentities.find({ userId }, options).sort({ createdAt: -1, _id: 1 }).toArray();
    const account = found.length > 0 ? await readAccount(collections, { id: userId }, tx) : undefined;
    if (!account) return [];
    return found.map(({ _id: key, provider, username, createdAt, lastUsedAt }) => {
      const issuer = key.slice(0, key.indexOf(" "));
      return {
        key,
        issuer,
        id: identityId(issuer, key.slice(issuer.length + 1)),
        provider: provider ?? new URL(issuer).host,
        username: username ?? account.user.username,
        linkedAt: new Date(createdAt),
        lastUsedAt: toOptionalDate(lastUsedAt),
      };
    });
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
        const { session } = tx;
        const { provider, name, verified } = identity;
        const _id = linkKey(identity);
        const link = await externalIdentities.findOne({ _id }, { session });
        const user = link && (await readAccount(collections, { id: link.userId }, tx))?.user;
        const linked = user && { userId: user.id, usernameKey: usernameKey(link.username ?? user.username) };
        const holder = linked || !name ? undefined : await readHolder(tx, name, _id, now);
        const decided = decideExternalUser({ link: linked ?? undefined, holder }, identity, first, now);
        if (typeof decided === "string") return decided;
        const { userId, change } = decided;
        if (change) return { userId, endedSessionIds: await linkUser(tx, identity, change, now) };
        const used = { provider, lastUsedAt: now.getTime(), ...(name && verified && { username: name.username }) };
        await externalIdentities.updateOne({ _id }, { $set: used }, { session });
        return { userId, endedSessionIds: [] };
      }),

    async list(userId) {
      return (await readLinks(userId)).map(({ key: _, ...link }) => link);
    },

    unlink: ({ userId, id, keptSessionId }, { noticeMail, events }, now) =>
      write(async (tx) => {
        const { session } = tx;
        // It conflicts with sign-ins by the link, and with the removal of another.
        await users.updateOne({ _id: userId }, { $inc: { signIns: 1 } }, { session });
        const links = await readLinks(userId, tx);
        const hasPassword = (await readAccount(collections, { id: userId }, tx))?.passwordHash !== undefined;
        const decided = decideUnlink({ hasPassword, identityIds: links.map((link) => link.id) }, id);
        if (decided !== "unlink") return decided;
        for (const { key } of links.filter((link) => link.id === id)) {
          await externalIdentities.deleteOne({ _id: key }, { session });
          const removed = { _id: `${userId} ${key}` };
          await removedIdentities.updateOne(removed, { $set: { userId } }, { upsert: true, session });
        }
        await addMail(collections, tx, userId, noticeMail, now);
        await tx.publish(events);
        return endSessionsOf(collections, tx, userId, now, keptSessionId);
      }),
  };
}

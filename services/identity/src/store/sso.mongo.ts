import { addMs } from "@sandgate/kit/base/time";
import { createCollections, type Db, type MongoDatabase, type MongoTransaction } from "@sandgate/kit/storage/mongo";
import { keptMs } from "../domain/retention.ts";
import type { SsoStore } from "./sso.ts";
import type { NewMail } from "./store.ts";

interface SsoAttemptDocument {
  /** The hash of the state. */
  _id: Uint8Array;
  browserHash: Uint8Array;
  provider: string;
  redirectUri: string;
  expiresAt: number;
  /** MongoDB removes the document then. */
  removeAt: Date;
}

interface ExternalIdentityDocument {
  /** The issuer, which has no space, and the subject. */
  _id: string;
  userId: string;
  createdAt: number;
}

/** The fields of a user that single sign-on reads and writes. */
interface UserDocument {
  _id: string;
  username: string;
  usernameKey: string;
  verifiedAt?: number;
  operator: boolean;
  version: number;
  createdAt: number;
}

/** A step of a migration. */
export const createSsoCollections = (db: Db) =>
  createCollections(db, {
    sso_attempts: [{ name: "removal", key: { removeAt: 1 }, expireAfterSeconds: 0 }],
    external_identities: [{ name: "by_user", key: { userId: 1 } }],
  });

/** The part of the store that single sign-on uses, and what the rest needs of it. */
export function createSsoStore(
  { db, write }: MongoDatabase,
  o: {
    addMail(tx: MongoTransaction, userId: string, mail: NewMail, now: Date): Promise<void>;
    /** Takes the user's password, links and sessions, and returns the ids of those that it ended. */
    removePassword(tx: MongoTransaction, userId: string, now: Date): Promise<string[]>;
  },
): SsoStore & { unlinkUser(tx: MongoTransaction, userId: string): Promise<void> } {
  const attempts = db.collection<SsoAttemptDocument>("sso_attempts");
  const identities = db.collection<ExternalIdentityDocument>("external_identities");
  const users = db.collection<UserDocument>("users");

  return {
    async unlinkUser({ session }, userId) {
      await identities.deleteMany({ userId }, { session });
    },

    async addSsoAttempt({ stateHash, expiresAt, ...attempt }) {
      await attempts.insertOne({
        _id: stateHash,
        ...attempt,
        expiresAt: expiresAt.getTime(),
        removeAt: addMs(expiresAt, keptMs.ssoAttempts),
      });
    },

    async takeSsoAttempt({ stateHash, browserHash, provider }, now) {
      const taken = await attempts.findOneAndDelete({
        _id: stateHash,
        browserHash,
        provider,
        expiresAt: { $gt: now.getTime() },
      });
      return taken ? { redirectUri: taken.redirectUri } : undefined;
    },

    resolveExternalUser: ({ issuer, subject, name }, first, now) =>
      write(async (tx) => {
        const { session } = tx;
        const _id = `${issuer} ${subject}`;
        const identity = await identities.findOne({ _id }, { session });
        const linked = identity && (await users.findOne({ _id: identity.userId }, { session }));
        if (linked) return { userId: linked._id, endedSessionIds: [] };
        if (!name) return "email_not_verified";
        const holder = await users.findOne({ usernameKey: name.usernameKey }, { session });
        if (holder && holder._id !== first.holder?.id) return "changed";
        const userId = holder?._id ?? first.created?.id;
        if (userId === undefined) return "unknown";
        // The version before this one deletes users without their links.
        const link = { userId, createdAt: now.getTime() };
        await identities.updateOne({ _id }, { $set: link }, { upsert: true, session });
        if (holder && first.holder) {
          await o.addMail(tx, userId, first.holder.noticeMail, now);
          await tx.publish(first.holder.events);
          if (holder.verifiedAt !== undefined) return { userId, endedSessionIds: [] };
          const change = { $set: { verifiedAt: now.getTime() }, $inc: { version: 1 } };
          await users.updateOne({ _id: userId }, change, { session });
          return { userId, endedSessionIds: await o.removePassword(tx, userId, now) };
        }
        const verifiedAt = now.getTime();
        const user = { ...name, verifiedAt, operator: false, version: 1, createdAt: verifiedAt };
        await users.insertOne({ _id: userId, ...user }, { session });
        await tx.publish(first.created?.events ?? []);
        return { userId, endedSessionIds: [] };
      }),
  };
}

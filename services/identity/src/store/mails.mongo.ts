import type { MongoDatabase, MongoTransaction } from "@sandgate/kit/storage/mongo";
import type { DueMail, NewMail } from "../domain/mails.ts";
import { type Collections, collectionsOf, type MailDocument, upserted } from "./collections.mongo.ts";
import { removeAfter, removeAt } from "./expiry.mongo.ts";
import type { Mails } from "./mails.ts";

/** A mail to the user that is due at once. */
function dueMail(userId: string, { id, sealed }: NewMail, now: Date): MailDocument {
  const at = now.getTime();
  return { _id: id, userId, sealed, attempts: 0, createdAt: at, dueAt: at, removeAt: removeAt("unsentMails", now) };
}

/** Commits a mail to the user, which is due at once. */
export async function addMail(
  { mails }: Collections,
  { session }: MongoTransaction,
  userId: string,
  mail: NewMail,
  now: Date,
): Promise<void> {
  await mails.insertOne(dueMail(userId, mail, now), { session });
}

export function createMails({ db }: MongoDatabase): Mails {
  const { mails } = collectionsOf(db);

  return {
    async add(userId, mail, now) {
      const { _id, ...due } = dueMail(userId, mail, now);
      await upserted(() =>
        mails.findOneAndUpdate({ _id }, { $setOnInsert: due }, { upsert: true, returnDocument: "after" }),
      );
    },

    async takeDue(now, leasedUntil, limit) {
      const taken: DueMail[] = [];
      while (taken.length < limit) {
        const mail = await mails.findOneAndUpdate(
          { dueAt: { $lte: now.getTime() } },
          { $set: { dueAt: leasedUntil.getTime() }, $inc: { attempts: 1 } },
          { sort: { dueAt: 1, _id: 1 }, returnDocument: "before" },
        );
        if (!mail?.sealed) break;
        taken.push({ id: mail._id, sealed: new Uint8Array(mail.sealed), attempts: mail.attempts });
      }
      return taken;
    },

    async finish(id) {
      await mails.updateOne({ _id: id }, [
        { $set: { removeAt: removeAfter("sentMails", "$createdAt") } },
        { $unset: ["sealed", "dueAt"] },
      ]);
    },

    async postpone(id, until) {
      await mails.updateOne({ _id: id, dueAt: { $exists: true } }, { $set: { dueAt: until.getTime() } });
    },
  };
}

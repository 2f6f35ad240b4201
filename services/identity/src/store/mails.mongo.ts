import type { MongoDatabase, MongoTransaction } from "@sandgate/kit/storage/mongo";
import { type Expiring, removeAfter, removeAt } from "./removal.mongo.ts";
import type { DueMail, IdentityStore, NewMail } from "./store.ts";

interface MailDocument extends Expiring {
  _id: string;
  userId: string;
  /** Unset once it was sent. */
  sealed?: Uint8Array;
  attempts: number;
  createdAt: number;
  /** Unset once it was sent. */
  dueAt?: number;
}

type MailStore = Pick<IdentityStore, "takeDueMails" | "finishMail" | "postponeMail">;

/** The part of the store that mails use, and what the rest needs of it. */
export function createMailStore({ db }: MongoDatabase): MailStore & {
  addMail(tx: MongoTransaction, userId: string, mail: NewMail, now: Date): Promise<void>;
  deleteMails(tx: MongoTransaction, userId: string): Promise<void>;
} {
  const mails = db.collection<MailDocument>("mails");

  return {
    async addMail({ session }, userId, mail, now) {
      const { id, sealed } = mail;
      await mails.insertOne(
        {
          _id: id,
          userId,
          sealed,
          attempts: 0,
          createdAt: now.getTime(),
          dueAt: now.getTime(),
          removeAt: removeAt("unsentMails", now),
        },
        { session },
      );
    },

    async deleteMails({ session }, userId) {
      await mails.deleteMany({ userId }, { session });
    },

    async takeDueMails(now, leasedUntil, limit) {
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

    async finishMail(id) {
      await mails.updateOne({ _id: id }, [
        { $set: { removeAt: removeAfter("sentMails", "$createdAt") } },
        { $unset: ["sealed", "dueAt"] },
      ]);
    },

    async postponeMail(id, until) {
      await mails.updateOne({ _id: id, dueAt: { $exists: true } }, { $set: { dueAt: until.getTime() } });
    },
  };
}

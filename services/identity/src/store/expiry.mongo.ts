import { addMs } from "@sandgate/kit/base/time";
import { createCollections, type Db } from "@sandgate/kit/storage/mongo";
import { keptMs } from "../domain/retention.ts";

/** Fields of documents that are kept for a limited time. Times are stored as epoch milliseconds, but for this one. */
export interface Expiring {
  /** MongoDB removes the document then. */
  removeAt?: Date;
}

/** When a document of this kind is removed. */
export const removeAt = (kind: keyof typeof keptMs, since: Date) => addMs(since, keptMs[kind]);
/** An expression of the time at which a document of this kind is removed; nothing where the field is missing. */
export const removeAfter = (kind: keyof typeof keptMs, since: unknown) => ({
  $cond: [{ $gt: [since, null] }, { $toDate: { $add: [since, keptMs[kind]] } }, "$$REMOVE"],
});

const isUnsent = { $gt: ["$dueAt", null] };
/** The collections whose documents are removed, when, and the index of the sweep that did it before MongoDB. */
const expiringCollections = [
  { name: "verifications", end: removeAfter("verifications", "$expiresAt"), swept: "expiry" },
  { name: "sessions", end: removeAfter("sessions", { $min: ["$idleAt", "$endedAt"] }), swept: "idle" },
  { name: "refresh_tokens", end: removeAfter("refreshTokens", "$expiresAt"), swept: "expiry" },
  { name: "api_tokens", end: removeAfter("apiTokens", "$expiresAt"), swept: "expiry" },
  {
    name: "mails",
    end: { $cond: [isUnsent, removeAfter("unsentMails", "$createdAt"), removeAfter("sentMails", "$createdAt")] },
    swept: "age",
  },
  { name: "request_windows", end: removeAfter("requestWindows", "$endsAt"), swept: "end" },
];

/** A step of a migration: MongoDB removes what a sweep removed before. The indexes of the sweep are dropped. */
export async function letExpire(db: Db): Promise<void> {
  for (const { name, end, swept } of expiringCollections) {
    const collection = db.collection(name);
    await collection.updateMany({}, [{ $set: { removeAt: end } }], { hint: { _id: 1 } });
    await createCollections(db, { [name]: [{ name: "removal", key: { removeAt: 1 }, expireAfterSeconds: 0 }] });
    if (await collection.indexExists(swept)) await collection.dropIndex(swept);
  }
}

import {
  type ClientSession,
  type Collection,
  type Db,
  type Document,
  type IndexDescription,
  MongoServerError,
} from "mongodb";
import { addMs } from "../base/time.ts";
import {
  addRecordUsage,
  type IdempotencyRecord,
  IdempotencyRecordExists,
  type IdempotencyStore,
  idempotencyRecordKeptMs,
  type RecordUsage,
} from "./idempotency-record.ts";
import type { LeaseStore } from "./leases.ts";
import { maxCountedEvents, type OutboxStore, refusedRetry, type StagedEvent, sentKeptMs } from "./outbox-store.ts";
import type { SealedValues } from "./sealed-values.ts";
import { headOf } from "./sealing.ts";

/** What the function of a transaction reads and writes with. It is valid until the function ends. */
export interface MongoTransaction {
  /** Every read and write passes it: `{ session: tx.session }`. */
  readonly session: ClientSession;
  /** Stages the events that this change causes. */
  publish(events: readonly StagedEvent[]): Promise<void>;
  /** Stages those of the events that are not in the outbox yet. */
  publishOnce(events: readonly StagedEvent[]): Promise<void>;
  /**
   * Stores the response of a call with an Idempotency-Key. Throws IdempotencyRecordExists if another call came first,
   * and RATE_LIMITED if the responses of its owner take too much.
   */
  keepIdempotencyRecord(record: IdempotencyRecord | undefined): Promise<void>;
}

interface OutboxDocument {
  _id: string;
  subject: string;
  bytes: Uint8Array;
  stagedAt: Date;
  /** Set only while the event waits for the bus. */
  unsent?: true;
  sentAt?: Date;
  sentTo?: string;
  /** How often the bus has refused the event, and when it is due again. Both are unset until it is refused. */
  refusals?: number;
  retryAt?: Date;
}

interface IdempotencyDocument {
  _id: string;
  sealed: Uint8Array;
  service: string;
  workspace: string;
  expiresAt: Date;
}

interface RecordUsageDocument extends RecordUsage {
  /** The owner. */
  _id: string;
}

interface LeaseDocument {
  _id: string;
  holder: string;
  expiresAt: Date;
}

/** The kit's own collections, in every database. Leases and idempotency records expire by the database's clock. */
export interface KitCollections {
  outbox: Collection<OutboxDocument>;
  answers: Collection<IdempotencyDocument>;
  answerUsages: Collection<RecordUsageDocument>;
  leases: Collection<LeaseDocument>;
}

const seconds = (ms: number) => Math.ceil(ms / 1000);

export const kitIndexes: Record<string, IndexDescription[]> = {
  kit_outbox: [
    { name: "unsent", key: { unsent: 1, stagedAt: 1 }, partialFilterExpression: { unsent: true } },
    { name: "sent_to", key: { sentTo: 1 }, partialFilterExpression: { sentTo: { $exists: true } } },
    { name: "kept", key: { sentAt: 1 }, expireAfterSeconds: seconds(sentKeptMs) },
  ],
  kit_answers: [{ name: "kept", key: { expiresAt: 1 }, expireAfterSeconds: 0 }],
  kit_leases: [],
};

/**
 * Serves the same query as `unsent`, separately for events that the bus has refused and those that it has not. The
 * third step adds it.
 */
export const refusedIndexes: Record<string, IndexDescription[]> = {
  kit_outbox: [
    {
      name: "refused",
      key: { unsent: 1, retryAt: 1, stagedAt: 1 },
      partialFilterExpression: { unsent: true },
    },
  ],
};

/** The fourth step adds them. */
export const answerUsageIndexes: Record<string, IndexDescription[]> = {
  kit_answer_usages: [{ name: "ended", key: { endsAt: 1 }, expireAfterSeconds: 0 }],
};

/** Matches unsent events that the bus has not refused. */
export const neverRefused = { unsent: true, retryAt: { $exists: false } } as const;

export function kitCollections(db: Db): KitCollections {
  return {
    outbox: db.collection("kit_outbox"),
    answers: db.collection("kit_answers"),
    answerUsages: db.collection("kit_answer_usages"),
    leases: db.collection("kit_leases"),
  };
}

/** True when another document has the same value of a unique index, even if that was committed at the same time. */
export function isDuplicateKey(error: unknown): boolean {
  return error instanceof MongoServerError && error.code === 11_000;
}

/** Creates what a service's function gets. `onPublish` is called when events were staged. */
export function createTransaction(
  { outbox, answers, answerUsages }: KitCollections,
  session: ClientSession,
  onPublish: () => void,
): MongoTransaction {
  async function publish(events: readonly StagedEvent[]): Promise<void> {
    if (events.length === 0) return;
    const stagedAt = new Date();
    await outbox.insertMany(
      events.map(({ id, subject, bytes }) => ({ _id: id, subject, bytes, stagedAt, unsent: true as const })),
      { session },
    );
    onPublish();
  }
  return {
    session,
    publish,
    async publishOnce(events) {
      const ids = events.map(({ id }) => id);
      const known = await outbox.find({ _id: { $in: ids } }, { session, projection: { _id: 1 } }).toArray();
      const seen = new Set(known.map(({ _id }) => _id));
      await publish(events.filter(({ id }) => !seen.has(id) && seen.add(id)));
    },
    async keepIdempotencyRecord(record) {
      if (!record) return;
      // A missing field is less than any date, so a new document is free too.
      const isFree = { $lte: ["$expiresAt", "$$NOW"] };
      const taken = await answers.updateOne(
        { _id: record.id },
        [
          {
            $set: {
              sealed: { $cond: [isFree, { $literal: record.sealed }, "$sealed"] },
              expiresAt: { $cond: [isFree, { $add: ["$$NOW", idempotencyRecordKeptMs] }, "$expiresAt"] },
              // The id was made of these.
              service: { $literal: record.service },
              workspace: { $literal: record.workspace },
            },
          },
        ],
        { upsert: true, session },
      );
      if (taken.upsertedCount + taken.modifiedCount === 0) {
        throw new IdempotencyRecordExists("Another call with this Idempotency-Key was first");
      }
      const before = await answerUsages.findOne({ _id: record.owner }, { session });
      const { bytes, endsAt } = addRecordUsage(before ?? undefined, record, new Date());
      await answerUsages.updateOne({ _id: record.owner }, { $set: { bytes, endsAt } }, { upsert: true, session });
    },
  };
}

export function createLeaseStore({ leases }: Pick<KitCollections, "leases">): LeaseStore {
  return {
    async acquire(names, holder, ttlMs) {
      if (names.length === 0) return [];
      const isOurs = { $or: [{ $lte: ["$expiresAt", "$$NOW"] }, { $eq: ["$holder", { $literal: holder }] }] };
      const take = [
        {
          $set: {
            holder: { $cond: [isOurs, { $literal: holder }, "$holder"] },
            expiresAt: { $cond: [isOurs, { $add: ["$$NOW", ttlMs] }, "$expiresAt"] },
          },
        },
      ];
      const write = () =>
        leases.bulkWrite(
          names.map((name) => ({ updateOne: { filter: { _id: name }, update: take, upsert: true } })),
          { ordered: false },
        );
      // Of two that create the same lease, one fails. Its second attempt finds the lease.
      await write().catch((error: unknown) => (isDuplicateKey(error) ? write() : Promise.reject(error)));
      const held = await leases
        .find({ _id: { $in: [...names] }, holder, $expr: { $gt: ["$expiresAt", "$$NOW"] } })
        .toArray();
      return held.map(({ _id }) => _id);
    },
    async listFree(names) {
      const held = await leases
        .find({ _id: { $in: [...names] }, $expr: { $gt: ["$expiresAt", "$$NOW"] } })
        .project<{ _id: string }>({ _id: 1 })
        .toArray();
      const taken = new Set(held.map(({ _id }) => _id));
      return names.filter((name) => !taken.has(name));
    },
    async release(names, holder) {
      await leases.updateMany({ _id: { $in: [...names] }, holder }, { $set: { expiresAt: new Date(0) } });
    },
  };
}

export function createIdempotencyStore({ answers }: KitCollections): IdempotencyStore {
  return {
    async find(id) {
      // The TTL index removes expired records about once a minute.
      const answer = await answers.findOne({ _id: id, $expr: { $gt: ["$expiresAt", "$$NOW"] } });
      return answer ? { id, sealed: new Uint8Array(answer.sealed) } : undefined;
    },
  };
}

export function createSealedValues(db: Db): SealedValues {
  return {
    async listOthers({ table, column, workspace, service }, keyId, limit, after) {
      // The server compares the first bytes, as sets of bits, so that only these documents come here.
      const head = headOf(keyId);
      const isCurrent = { $bitsAllSet: head, $bitsAllClear: head.map((byte) => ~byte) };
      const found = await db
        .collection<{ _id: string; [field: string]: unknown }>(table)
        .find({ _id: { $gt: after?.id ?? "" }, [column]: { $exists: true, $not: isCurrent } })
        .sort({ _id: 1 })
        .limit(limit)
        .project({ [column]: 1, ...(workspace && { [workspace]: 1 }), ...(service && { [service]: 1 }) })
        .toArray();
      const textIn = (document: Document, field: string | undefined) => {
        const value: unknown = field === undefined ? undefined : document[field];
        return typeof value === "string" ? value : undefined;
      };
      return found.flatMap((document) => {
        const value: unknown = document[column];
        if (!(value instanceof Uint8Array)) return [];
        return {
          id: String(document._id),
          sealed: new Uint8Array(value),
          workspace: textIn(document, workspace),
          service: textIn(document, service),
        };
      });
    },
    async replace({ table, column }, changes) {
      const values = db.collection<{ _id: string; [field: string]: unknown }>(table);
      const replaced = await Promise.all(
        changes.map(async ({ id, before, after }) => {
          const { modifiedCount } = await values.updateOne(
            { _id: id, [column]: before },
            { $set: { [column]: after } },
          );
          return modifiedCount > 0 ? [id] : [];
        }),
      );
      return replaced.flat();
    },
  };
}

export function createOutboxStore(
  { outbox }: KitCollections,
  o: { name: string; leases: LeaseStore; onStaged: OutboxStore["onStaged"]; onLead: (leads: boolean) => void },
): OutboxStore {
  const relayLease = ["kit.relay"];
  return {
    name: o.name,
    async unsent(limit) {
      const waiting = await outbox.find(neverRefused).sort({ stagedAt: 1 }).limit(limit).toArray();
      const isFull = waiting.length === limit;
      const now = new Date();
      // What is due later than after the longest delay was refused before the clock was set back.
      const isDue = [{ retryAt: { $lte: now } }, { retryAt: { $gt: addMs(now, refusedRetry.lastMs) } }];
      // A limit of 0 means no limit to MongoDB.
      const due = isFull
        ? []
        : await outbox
            .find({ unsent: true, $or: isDue })
            .sort({ retryAt: 1 })
            .limit(limit - waiting.length)
            .toArray();
      return [...waiting, ...due].map(({ _id, subject, bytes, refusals }) => ({
        id: _id,
        subject,
        bytes: new Uint8Array(bytes),
        refusals: refusals ?? 0,
      }));
    },
    async postpone(refused) {
      if (refused.length === 0) return;
      await outbox.bulkWrite(
        refused.map(({ id, until }) => ({
          updateOne: {
            filter: { _id: id, unsent: true },
            update: { $set: { retryAt: until }, $inc: { refusals: 1 } },
          },
        })),
        { ordered: false },
      );
    },
    async markSent(ids, bus) {
      await outbox.updateMany(
        { _id: { $in: [...ids] } },
        { $set: { sentAt: new Date(), sentTo: bus }, $unset: { unsent: true, refusals: true, retryAt: true } },
      );
    },
    async resend(bus, limit) {
      // Two ranges let the index find the events of other buses without reading those of this one.
      const others = [{ sentTo: { $lt: bus } }, { sentTo: { $gt: bus } }];
      const found = await outbox.find({ $or: others }).project<{ _id: string }>({ _id: 1 }).limit(limit).toArray();
      if (found.length === 0) return 0;
      const ids = found.map(({ _id }) => _id);
      await outbox.updateMany(
        { _id: { $in: ids }, sentTo: { $ne: bus } },
        { $set: { unsent: true }, $unset: { sentAt: true, sentTo: true } },
      );
      return found.length;
    },
    async backlog() {
      const [unsent, refused, oldest] = await Promise.all([
        outbox.countDocuments({ unsent: true }, { limit: maxCountedEvents }),
        outbox.countDocuments({ unsent: true, retryAt: { $gt: new Date(0) } }, { limit: maxCountedEvents }),
        outbox.find({ unsent: true }).sort({ stagedAt: 1 }).limit(1).next(),
      ]);
      return { unsent, refused, oldestStagedAt: oldest?.stagedAt };
    },
    async lead(holder, ttlMs) {
      const leads = (await o.leases.acquire(relayLease, holder, ttlMs)).length > 0;
      o.onLead(leads);
      return leads;
    },
    async resign(holder) {
      o.onLead(false);
      await o.leases.release(relayLease, holder);
    },
    onStaged: o.onStaged,
  };
}

import type { Db, MongoDatabase, MongoTransaction } from "@sandgate/kit/storage/mongo";
import { checkLinkCount, checkPreviewCount, maxLinks, maxPreviews, type Preview } from "../domain/previews.ts";
import type { Previews } from "./previews.ts";
import type { SandboxDocument } from "./sandboxes.mongo.ts";

interface PreviewDocument extends Omit<Preview, "id"> {
  _id: string;
  /** Counts up with its links, so that of two transactions that make some at once one runs again. */
  turn?: number;
}

/** A link that nobody opened yet. */
interface LinkDocument {
  /** Its hash in base64. */
  _id: string;
  previewId: string;
  expiresAt: Date;
}

export const previewIndexes = [
  { name: "by_label", key: { label: 1 }, unique: true },
  { name: "of_sandbox", key: { sandboxId: 1, createdAt: 1, _id: 1 } },
  { name: "of_user", key: { workspaceId: 1, createdBy: 1 } },
  { name: "of_creator", key: { createdBy: 1, createdAt: 1 } },
];
export const previewLinkIndexes = [{ name: "of_preview", key: { previewId: 1, expiresAt: 1 } }];

const previewsOf = (db: Db) => db.collection<PreviewDocument>("previews");
const linksOf = (db: Db) => db.collection<LinkDocument>("preview_links");

/**
 * Counts up the sandbox's turn in a transaction: of two at once, or one that ends the sandbox, one runs again. False
 * when it isn't ready.
 */
async function takeTurn(db: Db, { session }: MongoTransaction, sandboxId: string): Promise<boolean> {
  const sandboxes = db.collection<Pick<SandboxDocument, "_id" | "state" | "turn">>("sandboxes");
  const taken = await sandboxes.updateOne({ _id: sandboxId, state: "ready" }, { $inc: { turn: 1 } }, { session });
  return taken.matchedCount > 0;
}

type Which = NonNullable<Parameters<ReturnType<typeof previewsOf>["find"]>[0]>;

/** Deletes previews with their links; returns how many. */
async function deletePreviews(db: Db, { session }: MongoTransaction, which: Which): Promise<number> {
  const found = await previewsOf(db)
    .find(which, { session })
    .project<Pick<PreviewDocument, "_id">>({ _id: 1 })
    .toArray();
  const ids = found.map(({ _id }) => _id);
  if (ids.length === 0) return 0;
  await linksOf(db).deleteMany({ previewId: { $in: ids } }, { session });
  return (await previewsOf(db).deleteMany({ _id: { $in: ids } }, { session })).deletedCount;
}

/** In the transaction of something else. */
export async function deletePreviewsOf(db: Db, tx: MongoTransaction, sandboxIds: readonly string[]): Promise<void> {
  await deletePreviews(db, tx, { sandboxId: { $in: [...sandboxIds] } });
}

function toPreview({ _id, turn: _turn, tokenHash, ...preview }: PreviewDocument): Preview {
  return { id: _id, ...preview, tokenHash: new Uint8Array(tokenHash) };
}

export function createPreviews({ db, write }: MongoDatabase): Previews {
  const previews = previewsOf(db);
  const links = linksOf(db);

  const one = async (which: Which): Promise<Preview | undefined> => {
    const found = await previews.findOne(which);
    return found ? toPreview(found) : undefined;
  };

  return {
    create: (preview, o) =>
      write(async (tx) => {
        const { session } = tx;
        const { id: _id, ...others } = preview;
        const { sandboxId } = preview;
        if (!(await takeTurn(db, tx, sandboxId))) return false;
        await tx.keepIdempotencyRecord(o.record);
        await deletePreviews(db, tx, { sandboxId, expiresAt: { $lte: preview.createdAt } });
        checkPreviewCount(await previews.countDocuments({ sandboxId }, { session, limit: maxPreviews }));
        await previews.insertOne({ _id, ...others }, { session });
        await tx.publish(o.events);
        return true;
      }, preview.sandboxId),

    get: (id) => one({ _id: id }),
    findByLabel: (label) => one({ label }),

    async list(sandboxId) {
      return (await previews.find({ sandboxId }).sort({ createdAt: 1, _id: 1 }).toArray()).map(toPreview);
    },

    delete: (id, events) =>
      write(async (tx) => {
        if ((await deletePreviews(db, tx, { _id: id })) === 0) return false;
        await tx.publish(events);
        return true;
      }),

    deleteOfUser: (workspaceId, userId, by) =>
      write((tx) => {
        const ofWorkspace = workspaceId === undefined ? {} : { workspaceId };
        return deletePreviews(db, tx, { ...ofWorkspace, createdBy: userId, createdAt: { $lte: by } });
      }),

    createLink: (link, { now, events }) =>
      write(async (tx) => {
        const { session } = tx;
        const { previewId, expiresAt } = link;
        const taken = await previews.updateOne({ _id: previewId }, { $inc: { turn: 1 } }, { session });
        if (taken.matchedCount === 0) return false;
        await links.deleteMany({ previewId, expiresAt: { $lte: now } }, { session });
        checkLinkCount(await links.countDocuments({ previewId }, { session, limit: maxLinks }));
        await links.insertOne({ _id: Buffer.from(link.hash).toString("base64"), previewId, expiresAt }, { session });
        await tx.publish(events);
        return true;
      }, link.previewId),

    async takeLink(hash) {
      const found = await links.findOneAndDelete({ _id: Buffer.from(hash).toString("base64") });
      return found ? { hash, previewId: found.previewId, expiresAt: found.expiresAt } : undefined;
    },
  };
}

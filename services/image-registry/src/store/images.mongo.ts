import { afterPosition, type MongoDatabase, type MongoTransaction } from "@sandgate/kit/storage/mongo";
import { type ImageRecord, type ImageView, isGlobalDefault } from "../domain/images.ts";
import { decideCreate, type WorkspaceState } from "../domain/quotas.ts";
import type { RegistryVersion } from "../domain/registries.ts";
import {
  byName,
  type Collections,
  collectionsOf,
  type ImageDocument,
  newest,
  newestEnabled,
} from "./collections.mongo.ts";
import type { ImageFilter, Images } from "./images.ts";

/**
 * Reads a workspace's guard and writes it, so that creates there take turns with each other and with its deletion.
 *
 * @param max the workspace's quota of this kind
 */
export async function lockWorkspace(
  collections: Collections,
  { session }: MongoTransaction,
  workspaceId: string,
  kind: "images" | "registries",
  max: number,
): Promise<WorkspaceState> {
  const guard = await collections.guards.findOneAndUpdate(
    { _id: workspaceId },
    { $inc: { creates: 1 } },
    { upsert: true, returnDocument: "after", session },
  );
  const count = max && (await collections[kind].countDocuments({ workspaceId }, { session, limit: max }));
  return { deleted: guard?.deletedAt !== undefined, count };
}

const visible = ({ workspaceId, enabledOnly }: ImageFilter) => ({
  workspaceId: { $in: [workspaceId, ""] },
  ...(enabledOnly && { enabled: true }),
});

export function createImages({ db, write }: MongoDatabase): Images {
  const collections = collectionsOf(db);
  const { images, registries, seeds } = collections;

  /** False when the registry has changed since it was read. It can't change before this transaction is over. */
  async function lockRegistry({ session }: MongoTransaction, registry: RegistryVersion | undefined): Promise<boolean> {
    if (!registry) return true;
    const { id, version } = registry;
    const locked = await registries.updateOne({ _id: id, version }, { $inc: { checks: 1 } }, { session });
    return locked.matchedCount === 1;
  }

  async function insert(tx: MongoTransaction, { id, ...image }: ImageRecord): Promise<void> {
    await images.insertOne({ _id: id, ...image }, { session: tx.session });
  }

  async function withRegistryNames(found: readonly ImageDocument[]): Promise<ImageView[]> {
    const ids = found.flatMap(({ registryId }) => (registryId === undefined ? [] : [registryId]));
    const named = ids.length === 0 ? [] : await registries.find({ _id: { $in: ids } }).toArray();
    const names = new Map(named.map(({ _id, name }) => [_id, name]));
    return found.map(({ _id, ...image }) => ({ id: _id, ...image, registryName: names.get(image.registryId ?? "") }));
  }

  return {
    async find(imageId, workspaceId) {
      const found = await images.findOne({ _id: imageId, workspaceId: { $in: [workspaceId, ""] } });
      return found ? (await withRegistryNames([found]))[0] : undefined;
    },

    async findByName(name, workspaceId, tag) {
      const find = (workspaceId: string) =>
        images
          .find({ workspaceId, name, ...(tag !== undefined && { tag }) })
          .hint(byName)
          .limit(2)
          .toArray();
      const own = await find(workspaceId);
      return withRegistryNames(own.length > 0 ? own : await find(""));
    },

    async list(filter, after, limit) {
      const last = after && { createdAt: after.createdAt, _id: after.id };
      const found = await images
        .find({ ...visible(filter), ...afterPosition<ImageDocument>(last) })
        .hint(filter.enabledOnly ? newestEnabled : newest)
        .sort({ createdAt: -1, _id: -1 })
        .limit(limit)
        .toArray();
      return withRegistryNames(found);
    },

    count: (filter) => images.countDocuments(visible(filter)),

    create: (image, registry, { maxImages }, events, record) =>
      write(async (tx) => {
        if (!isGlobalDefault(image)) {
          const workspace = await lockWorkspace(collections, tx, image.workspaceId, "images", maxImages);
          const outcome = decideCreate(workspace, maxImages);
          if (outcome !== "done") return outcome;
        }
        if (!(await lockRegistry(tx, registry))) return "stale";
        await tx.keepIdempotencyRecord(record);
        await insert(tx, image);
        await tx.publish(events);
        return "done";
      }),

    createDefault: (image, events) =>
      write(async (tx) => {
        const { session } = tx;
        if (await seeds.findOne({ _id: "default_image" }, { session })) return;
        await seeds.insertOne({ _id: "default_image" }, { session });
        await insert(tx, image);
        await tx.publish(events);
      }),

    update: ({ id, version, ...image }, registry, events) =>
      write(async (tx) => {
        if (!(await lockRegistry(tx, registry))) return "stale";
        const { session } = tx;
        const updated = await images.replaceOne({ _id: id, version }, { ...image, version: version + 1 }, { session });
        if (updated.matchedCount === 0) return "stale";
        await tx.publish(events);
        return "done";
      }),

    delete: (imageId, version, events) =>
      write(async (tx) => {
        const deleted = await images.deleteOne({ _id: imageId, version }, { session: tx.session });
        if (deleted.deletedCount === 0) return "stale";
        await tx.publish(events);
        return "done";
      }),
  };
}

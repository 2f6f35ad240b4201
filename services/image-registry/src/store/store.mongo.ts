import {
  afterPosition,
  createCollections,
  type Db,
  deleteBatch,
  isDuplicateKey,
  type MongoMigration,
  type MongoTransaction,
  openMongo,
} from "@sandgate/kit/storage/mongo";
import { type MongoStoreOptions, serviceStoreOf } from "@sandgate/kit/storage/open-store";
import type { SealedColumn } from "@sandgate/kit/storage/sealed-values";
import { createPurges, type GuardDocument, guardIndexes } from "@sandgate/kit/workspaces/mongo-guards";
import type { ImageRecord, ImageRegistryStore, ImageView, RegistryRecord, RegistryVersion } from "./store.ts";

interface ImageDocument extends Omit<ImageRecord, "id"> {
  _id: string;
}

interface RegistryDocument extends Omit<RegistryRecord, "id"> {
  _id: string;
  /** Grows with every image that is checked against it: images and changes of their registry take turns on it. */
  checks?: number;
}

interface ImageGuardDocument extends GuardDocument {
  /** Grows with every create: creates and the workspace's deletion take turns on it. */
  creates?: number;
}

interface SeedDocument {
  _id: "default_image";
}

/** A layer whose bytes were downloaded from a registry and have its digest. Of no workspace: it says where it can be got. */
interface VerifiedLayerDocument {
  _id: string;
  diffId: string;
  verifiedAt: Date;
}

// Lists name their index: the server may try another that it has to sort for.
const newest = "newest";
const newestEnabled = "newest_enabled";

const migrations: readonly MongoMigration[] = [
  {
    name: "image-registry 1: images, registries, guards, seeds",
    run: (db) =>
      createCollections(db, {
        images: [
          { name: newest, key: { workspaceId: 1, createdAt: -1, _id: -1 } },
          { name: "by_registry", key: { registryId: 1 }, partialFilterExpression: { registryId: { $exists: true } } },
        ],
        registries: [
          { name: "name", key: { workspaceId: 1, name: 1 }, unique: true },
          { name: "newest", key: { workspaceId: 1, createdAt: -1, _id: -1 } },
        ],
        guards: guardIndexes,
        seeds: [],
      }),
  },
  {
    name: "image-registry 2: verified layers",
    expands: true,
    run: (db) => createCollections(db, { verifiedLayers: [{ name: "by_age", key: { verifiedAt: 1 } }] }),
  },
  {
    name: "image-registry 3: newest of the enabled",
    expands: true,
    run: (db) =>
      createCollections(db, {
        images: [
          {
            name: newestEnabled,
            key: { workspaceId: 1, enabled: 1, createdAt: -1, _id: -1 },
            partialFilterExpression: { enabled: true },
          },
        ],
      }),
  },
];

const sealedColumns: readonly SealedColumn[] = [
  { table: "registries", column: "sealedPassword", workspace: "workspaceId" },
];

const collectionsOf = (db: Db) => ({
  images: db.collection<ImageDocument>("images"),
  registries: db.collection<RegistryDocument>("registries"),
  guards: db.collection<ImageGuardDocument>("guards"),
  seeds: db.collection<SeedDocument>("seeds"),
  verifiedLayers: db.collection<VerifiedLayerDocument>("verifiedLayers"),
});

function toView({ _id, ...image }: ImageDocument, registryName: string | undefined): ImageView {
  // What is undefined is not stored.
  const { description, readinessPort, ttlSeconds, registryId } = image;
  return { id: _id, ...image, description, readinessPort, ttlSeconds, registryId, registryName };
}

function placeOf(host: string, digest: string): string {
  return `${host} ${digest}`;
}

function toRegistry({ _id, checks: _, ...registry }: RegistryDocument): RegistryRecord {
  return { id: _id, ...registry, sealedPassword: new Uint8Array(registry.sealedPassword) };
}

/** Opens the service's database on a replica set, creating and migrating it as needed. */
export async function openMongoStore(options: MongoStoreOptions): Promise<ImageRegistryStore> {
  const database = await openMongo({ ...options, migrations });
  const { write } = database;
  const { images, registries, guards, seeds, verifiedLayers } = collectionsOf(database.db);

  /** False when the workspace's guard says that it is deleted. */
  async function passGuard(tx: MongoTransaction, workspaceId: string): Promise<boolean> {
    const guard = await guards.findOneAndUpdate(
      { _id: workspaceId },
      { $inc: { creates: 1 } },
      { upsert: true, returnDocument: "after", session: tx.session },
    );
    return guard?.deletedAt === undefined;
  }

  /** Whether the workspace, whose guard this transaction holds, has as many images as it may; 0: no limit. */
  async function hasTooManyImages({ session }: MongoTransaction, workspaceId: string, max: number): Promise<boolean> {
    return max > 0 && (await images.countDocuments({ workspaceId }, { session, limit: max })) === max;
  }

  /** The same of its registry credentials. */
  async function hasTooManyRegistries(
    { session }: MongoTransaction,
    workspaceId: string,
    max: number,
  ): Promise<boolean> {
    return max > 0 && (await registries.countDocuments({ workspaceId }, { session, limit: max })) === max;
  }

  /** False when the registry has changed since it was read. It can't change before this transaction is over. */
  async function holdRegistry(tx: MongoTransaction, { id, version }: RegistryVersion): Promise<boolean> {
    const held = await registries.updateOne({ _id: id, version }, { $inc: { checks: 1 } }, { session: tx.session });
    return held.matchedCount === 1;
  }

  async function isInUse({ session }: MongoTransaction, registryId: string): Promise<boolean> {
    return (await images.findOne({ registryId }, { session, projection: { _id: 1 } })) !== null;
  }

  /** Whether another registry of the workspace has this name. */
  async function isNameTaken({ session }: MongoTransaction, registry: RegistryRecord): Promise<boolean> {
    const { id, workspaceId, name } = registry;
    const holder = await registries.findOne({ workspaceId, name }, { session, projection: { _id: 1 } });
    return holder !== null && holder._id !== id;
  }

  async function insertImage(tx: MongoTransaction, { id, ...image }: ImageRecord): Promise<void> {
    await images.insertOne({ _id: id, ...image }, { session: tx.session });
  }

  async function withRegistryNames(found: readonly ImageDocument[]): Promise<ImageView[]> {
    const ids = found.flatMap(({ registryId }) => (registryId === undefined ? [] : [registryId]));
    const named = ids.length === 0 ? [] : await registries.find({ _id: { $in: ids } }).toArray();
    const names = new Map(named.map(({ _id, name }) => [_id, name]));
    return found.map((image) => toView(image, names.get(image.registryId ?? "")));
  }

  const visibleTo = (workspaceId: string, enabledOnly: boolean) => ({
    workspaceId: { $in: [workspaceId, ""] },
    ...(enabledOnly && { enabled: true }),
  });

  return {
    ...serviceStoreOf(database, sealedColumns),
    async findImage(imageId, workspaceId) {
      const found = await images.findOne({ _id: imageId, workspaceId: { $in: [workspaceId, ""] } });
      return found ? (await withRegistryNames([found]))[0] : undefined;
    },

    async listImages({ workspaceId, enabledOnly }, after, limit) {
      const last = after && { createdAt: after.createdAt, _id: after.id };
      const found = await images
        .find({ ...visibleTo(workspaceId, enabledOnly), ...afterPosition<ImageDocument>(last) })
        .hint(enabledOnly ? newestEnabled : newest)
        .sort({ createdAt: -1, _id: -1 })
        .limit(limit)
        .toArray();
      return withRegistryNames(found);
    },

    async countImages({ workspaceId, enabledOnly }) {
      return images.countDocuments(visibleTo(workspaceId, enabledOnly));
    },

    async findRegistry(registryId, workspaceId) {
      const found = await registries.findOne({ _id: registryId, workspaceId });
      return found ? toRegistry(found) : undefined;
    },

    async listRegistries(workspaceId, after, limit) {
      const last = after && { createdAt: after.createdAt, _id: after.id };
      const found = await registries
        .find({ workspaceId, ...afterPosition<RegistryDocument>(last) })
        .sort({ createdAt: -1, _id: -1 })
        .limit(limit)
        .toArray();
      return found.map(toRegistry);
    },

    createImage: (image, registry, caps, events, record) =>
      write(async (tx) => {
        if (image.workspaceId !== "") {
          if (!(await passGuard(tx, image.workspaceId))) return "workspace_deleted";
          if (await hasTooManyImages(tx, image.workspaceId, caps.maxImages)) return "too_many";
        }
        if (registry && !(await holdRegistry(tx, registry))) return "stale";
        await tx.keepIdempotencyRecord(record);
        await insertImage(tx, image);
        await tx.publish(events);
        return "done";
      }),

    createDefaultImage: (image, events) =>
      write(async (tx) => {
        const { session } = tx;
        if (await seeds.findOne({ _id: "default_image" }, { session })) return;
        await seeds.insertOne({ _id: "default_image" }, { session });
        await insertImage(tx, image);
        await tx.publish(events);
      }),

    updateImage: (image, registry, events) =>
      write(async (tx) => {
        if (registry && !(await holdRegistry(tx, registry))) return "stale";
        const { id, version, ...changed } = image;
        const updated = await images.replaceOne(
          { _id: id, version },
          { ...changed, version: version + 1 },
          { session: tx.session },
        );
        if (updated.matchedCount === 0) return "stale";
        await tx.publish(events);
        return "done";
      }),

    deleteImage: (imageId, version, events) =>
      write(async (tx) => {
        const deleted = await images.deleteOne({ _id: imageId, version }, { session: tx.session });
        if (deleted.deletedCount === 0) return "stale";
        await tx.publish(events);
        return "done";
      }),

    async createRegistry(registry, caps, events, record) {
      try {
        return await write(async (tx) => {
          if (!(await passGuard(tx, registry.workspaceId))) return "workspace_deleted";
          if (await isNameTaken(tx, registry)) return "name_taken";
          if (await hasTooManyRegistries(tx, registry.workspaceId, caps.maxRegistries)) return "too_many";
          await tx.keepIdempotencyRecord(record);
          const { id, ...rest } = registry;
          await registries.insertOne({ _id: id, ...rest }, { session: tx.session });
          await tx.publish(events);
          return "done";
        });
      } catch (error) {
        // Thrown, so that the idempotency record is undone.
        if (isDuplicateKey(error)) return "name_taken";
        throw error;
      }
    },

    updateRegistry: (registry, events) =>
      write(async (tx) => {
        const { session } = tx;
        const { id, workspaceId: _workspace, createdAt: _created, version, ...changed } = registry;
        const before = await registries.findOne({ _id: id, version }, { session });
        if (!before) return "stale";
        if (before.host !== registry.host && (await isInUse(tx, id))) return "in_use";
        if (await isNameTaken(tx, registry)) return "name_taken";
        await registries.updateOne({ _id: id, version }, { $set: changed, $inc: { version: 1 } }, { session });
        await tx.publish(events);
        return "done";
      }),

    deleteRegistry: (registryId, version, events) =>
      write(async (tx) => {
        if (await isInUse(tx, registryId)) return "in_use";
        const deleted = await registries.deleteOne({ _id: registryId, version }, { session: tx.session });
        if (deleted.deletedCount === 0) return "stale";
        await tx.publish(events);
        return "done";
      }),

    async findVerifiedLayers(host, digests) {
      const places = new Map(digests.map((digest) => [placeOf(host, digest), digest]));
      const found = await verifiedLayers.find({ _id: { $in: [...places.keys()] } }).toArray();
      return found.map(({ _id, diffId }) => ({ digest: places.get(_id) ?? "", diffId }));
    },

    async putVerifiedLayers(host, layers, verifiedAt) {
      if (layers.length === 0) return;
      await verifiedLayers.bulkWrite(
        layers.map(({ digest, diffId }) => ({
          updateOne: {
            filter: { _id: placeOf(host, digest) },
            update: { $set: { diffId, verifiedAt } },
            upsert: true,
          },
        })),
        { ordered: false },
      );
    },

    async findVerifiedBeyond(count) {
      const found = await verifiedLayers.find().sort({ verifiedAt: -1 }).skip(count).limit(1).toArray();
      return found[0]?.verifiedAt;
    },

    deleteVerifiedBefore: (before, limit) => deleteBatch(verifiedLayers, { verifiedAt: { $lt: before } }, limit),

    ...createPurges(guards, write),

    async purgeBatch(workspaceId, limit) {
      const removed =
        (await deleteBatch(images, { workspaceId }, limit)) + (await deleteBatch(registries, { workspaceId }, limit));
      return removed === 0;
    },
  };
}

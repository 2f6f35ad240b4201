import { createCollections, deleteBatch, type MongoMigration, openMongo } from "@sandgate/kit/storage/mongo";
import { type MongoStoreOptions, serviceStoreOf } from "@sandgate/kit/storage/open-store";
import type { SealedColumn } from "@sandgate/kit/storage/sealed-values";
import { createPurges, guardIndexes, purgedIndex } from "@sandgate/kit/workspaces/mongo-guards";
import { byName, collectionsOf, newest, newestEnabled } from "./collections.mongo.ts";
import { createImages } from "./images.mongo.ts";
import { createRegistries } from "./registries.mongo.ts";
import type { ImageRegistryStore } from "./store.ts";
import { createVerifiedLayers } from "./verified-layers.mongo.ts";

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
  {
    name: "image-registry 4: purged workspaces by age",
    expands: true,
    run: (db) => createCollections(db, { guards: [purgedIndex] }),
  },
  {
    name: "image-registry 5: images by name",
    expands: true,
    run: (db) => createCollections(db, { images: [{ name: byName, key: { workspaceId: 1, name: 1 } }] }),
  },
];

const sealedColumns: readonly SealedColumn[] = [
  { table: "registries", column: "sealedPassword", workspace: "workspaceId" },
];

/** Opens the service's database on a replica set, creating and migrating it as needed. */
export async function openMongoStore(options: MongoStoreOptions): Promise<ImageRegistryStore> {
  const database = await openMongo({ ...options, migrations });
  const { images, registries, guards } = collectionsOf(database.db);
  return {
    ...serviceStoreOf(database, sealedColumns),
    images: createImages(database),
    registries: createRegistries(database),
    verifiedLayers: createVerifiedLayers(database),
    purges: {
      ...createPurges(guards, database.write),
      async deleteBatch(workspaceId, limit) {
        const deleted =
          (await deleteBatch(images, { workspaceId }, limit)) + (await deleteBatch(registries, { workspaceId }, limit));
        return deleted === 0;
      },
    },
  };
}

import { newId } from "@sandgate/kit/base/ids";
import { createCollections, type Db, type MongoMigration, openMongo } from "@sandgate/kit/storage/mongo";
import { type MongoStoreOptions, serviceStoreOf } from "@sandgate/kit/storage/open-store";
import type { SealedColumn } from "@sandgate/kit/storage/sealed-values";
import { createPurges, guardIndexes, purgedIndex } from "@sandgate/kit/workspaces/mongo-guards";
import { createImageUses } from "./image-uses.mongo.ts";
import { createPreviews, previewIndexes, previewLinkIndexes } from "./previews.mongo.ts";
import { createQuotaOwners, userGuardIndexes } from "./quota-owners.mongo.ts";
import {
  createActivity,
  createRetention,
  createSandboxes,
  createUnfinishedSandboxes,
  sandboxIndexes,
} from "./sandboxes.mongo.ts";
import type { SandboxStore } from "./store.ts";

interface InstallationDocument {
  _id: "installation";
  installationId: string;
}

const migrations: readonly MongoMigration[] = [
  {
    name: "sandbox 1: sandboxes, guards, installation",
    run: (db) =>
      createCollections(db, {
        sandboxes: [
          {
            name: "live_name",
            key: { workspaceId: 1, name: 1 },
            unique: true,
            partialFilterExpression: { live: true },
          },
          { name: sandboxIndexes.byName, key: { workspaceId: 1, name: 1, live: -1, createdAt: -1, _id: -1 } },
          { name: sandboxIndexes.newest, key: { workspaceId: 1, createdAt: -1, _id: -1 } },
          { name: "unfinished", key: { uncleaned: 1, _id: 1 }, partialFilterExpression: { uncleaned: true } },
          { name: "uncleaned", key: { workspaceId: 1, uncleaned: 1 }, partialFilterExpression: { uncleaned: true } },
          {
            name: "cleaned",
            key: { workspaceId: 1, cleanedAt: 1 },
            partialFilterExpression: { cleanedAt: { $exists: true } },
          },
          { name: "ended", key: { stoppedAt: 1 }, partialFilterExpression: { cleanedAt: { $exists: true } } },
        ],
        guards: guardIndexes,
        installation: [],
      }),
  },
  {
    name: "sandbox 2: what is live in each workspace",
    expands: true,
    run: (db) =>
      createCollections(db, {
        guards: [
          {
            name: "live",
            key: { liveCount: 1, liveMemoryMb: 1 },
            partialFilterExpression: { liveCount: { $gt: 0 } },
          },
        ],
      }),
  },
  {
    name: "sandbox 3: newest of a state and of a label",
    expands: true,
    run: (db) =>
      createCollections(db, {
        sandboxes: [
          { name: sandboxIndexes.newestByState, key: { workspaceId: 1, state: 1, createdAt: -1, _id: -1 } },
          { name: sandboxIndexes.newestByLabel, key: { workspaceId: 1, labels: 1, state: 1, createdAt: -1, _id: -1 } },
        ],
      }),
  },
  {
    name: "sandbox 4: whom workspaces are charged to",
    expands: true,
    run: (db) =>
      createCollections(db, {
        guards: [
          {
            name: "charged",
            key: { chargedTo: 1, _id: 1, liveCount: 1, liveMemoryMb: 1 },
            partialFilterExpression: { liveCount: { $gt: 0 } },
          },
        ],
        user_guards: [],
      }),
  },
  {
    name: "sandbox 5: uses of images",
    expands: true,
    run: (db) => createCollections(db, { image_uses: [] }),
  },
  {
    name: "sandbox 6: newest of all workspaces and of a user",
    expands: true,
    run: (db) =>
      createCollections(db, {
        sandboxes: [
          { name: sandboxIndexes.newestOfAll, key: { state: 1, createdAt: -1, _id: -1 } },
          { name: sandboxIndexes.newestOfUser, key: { createdBy: 1, state: 1, createdAt: -1, _id: -1 } },
        ],
      }),
  },
  {
    name: "sandbox 7: purged workspaces by age",
    expands: true,
    run: (db) => createCollections(db, { guards: [purgedIndex] }),
  },
  {
    name: "sandbox 8: environment variables",
    expands: true,
    run: (db) => createCollections(db, { envs: [] }),
  },
  {
    name: "sandbox 9: previews of ports",
    expands: true,
    run: (db) => createCollections(db, { previews: previewIndexes, preview_links: previewLinkIndexes }),
  },
  {
    name: "sandbox 10: removal of users' guards",
    expands: true,
    async run(db) {
      await createCollections(db, { user_guards: userGuardIndexes });
      // Those from before have no end. Whoever needs one makes it again.
      await db.collection("user_guards").deleteMany({}, { hint: { _id: 1 } });
    },
  },
];

const sealedColumns: readonly SealedColumn[] = [{ table: "envs", column: "sealed", workspace: "workspaceId" }];

async function findInstallationId(db: Db): Promise<string> {
  const found = await db
    .collection<InstallationDocument>("installation")
    .findOneAndUpdate(
      { _id: "installation" },
      { $setOnInsert: { installationId: newId() } },
      { upsert: true, returnDocument: "after" },
    );
  if (!found) throw new Error("The installation's id was neither found nor created.");
  return found.installationId;
}

/** Opens the database of sandboxes on a replica set; creates or migrates it first. */
export async function openMongoStore(o: MongoStoreOptions): Promise<SandboxStore> {
  const database = await openMongo({ ...o, migrations });
  const { db, write } = database;
  const owners = createQuotaOwners(db);
  return {
    ...serviceStoreOf(database, sealedColumns),
    sandboxes: createSandboxes(database, owners),
    unfinished: createUnfinishedSandboxes(db),
    activity: createActivity(database),
    retention: createRetention(database, owners),
    quotaOwners: owners,
    imageUses: createImageUses(db),
    previews: createPreviews(database),
    purges: createPurges(db.collection("guards"), write),
    installation: { findId: () => findInstallationId(db) },
  };
}

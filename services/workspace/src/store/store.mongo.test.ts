import { newId } from "@sandgate/kit/base/ids";
import { openMongo } from "@sandgate/kit/storage/mongo";
import type { MongoStoreOptions } from "@sandgate/kit/storage/open-store";
import { Role } from "@sandgate/proto/common/v1/access";
import { describeOnMongo } from "@sandgate/test/stores";
import { afterEach, beforeEach, expect, test } from "vitest";
import { describeWorkspaceStore } from "./store.contract.ts";
import { createMongoStore, migrations, openMongoStore } from "./store.mongo.ts";

await describeOnMongo("workspace", openMongoStore, describeWorkspaceStore);

async function openWithDatabase(options: MongoStoreOptions) {
  const database = await openMongo({ ...options, migrations });
  return { ...createMongoStore(database), db: database.db };
}

await describeOnMongo("workspace", openWithDatabase, (_, open) => {
  let store: Awaited<ReturnType<typeof open>>;
  beforeEach(async () => {
    store = await open();
  });
  afterEach(() => store.close());

  test("a workspace that an earlier version makes beside this one is charged to the owner who joined first", async () => {
    const at = new Date(Date.UTC(2026, 0, 1));
    const later = new Date(at.getTime() + 1);
    const charged = { id: newId(), name: "Lab", createdAt: at, updatedAt: at, version: 1 };
    await store.createWorkspace(charged, "dora", { maxOwned: 0, maxMembers: 0 }, [], undefined);
    const [id, withoutOwner] = [newId(), newId()];
    await store.db.collection<{ _id: string; version: number }>("workspaces").insertMany([
      { _id: id, version: 7 },
      { _id: withoutOwner, version: 1 },
    ]);
    await store.db.collection("members").insertMany([
      { workspaceId: id, userId: "ann", role: Role.MEMBER, joinedAt: at, workspaceCreatedAt: at },
      { workspaceId: id, userId: "bob", role: Role.OWNER, joinedAt: later, workspaceCreatedAt: at },
      { workspaceId: id, userId: "carl", role: Role.OWNER, joinedAt: at, workspaceCreatedAt: at },
    ]);
    expect(await store.findCharges([id])).toEqual([]);
    expect(await store.findMember(id, "bob", "bob")).toMatchObject({ owners: 2, charge: undefined });
    for (const _ of [1, 2]) {
      await store.chargeFirstOwners();
      expect(await store.findCharges([charged.id, id, withoutOwner])).toEqual(
        expect.arrayContaining([
          { workspaceId: charged.id, userId: "dora", since: 1, abandoned: false },
          { workspaceId: id, userId: "carl", since: 7, abandoned: false },
        ]),
      );
    }
    expect(await store.findCharges([withoutOwner])).toEqual([]);
  });
});

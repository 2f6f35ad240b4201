import { newId } from "@sandgate/kit/base/ids";
import { openMongo } from "@sandgate/kit/storage/mongo";
import type { MongoStoreOptions } from "@sandgate/kit/storage/open-store";
import { describeOnMongo } from "@sandgate/test/stores";
import { expect, test } from "vitest";
import { describeSandboxStore } from "./store.contract.ts";
import { sandboxOf, unlimited, withoutQuotas } from "./store.fixture.ts";
import { openMongoStore } from "./store.mongo.ts";

await describeOnMongo("sandbox", openMongoStore, describeSandboxStore);

/** Opens a database in which an earlier version has kept where creates of a user took turns. */
async function openWithDatabase(options: MongoStoreOptions) {
  const before = await openMongo({ ...options, migrations: [] });
  await before.db.collection<{ _id: string }>("user_guards").insertOne({ _id: "bob" });
  const store = await openMongoStore(options);
  return {
    ...store,
    db: before.db,
    async close() {
      await store.close();
      await before.close();
    },
  };
}

await describeOnMongo("sandbox", openWithDatabase, (_, open) => {
  test("what users' creates take turns on is removed a day after the last one, and what has no end at once", async () => {
    const { db, sandboxes, close } = await open();
    const guards = db.collection<{ expiresAt?: Date }>("user_guards");
    const { name } = (await guards.indexes()).find((index) => index.expireAfterSeconds === 0) ?? {};
    expect(name).toBe("unused");
    const before = Date.now();
    const quotas = { ...unlimited, user: { maxSandboxes: 9, maxMemoryMb: 0 } };
    for (const _ of [1, 2]) {
      const sandbox = sandboxOf({ workspaceId: newId() });
      await sandboxes.create(sandbox, { ...withoutQuotas, quotaOwner: { userId: "ann", since: 1 }, quotas });
    }
    const kept = await guards.find().hint({ _id: 1 }).toArray();
    expect(kept).toMatchObject([{ _id: "ann", creates: 2 }]);
    expect(kept[0]?.expiresAt?.getTime()).toBeGreaterThanOrEqual(before + 86_400_000);
    await close();
  });
});

import { newId } from "@sandgate/kit/base/ids";
import { openMongo } from "@sandgate/kit/storage/mongo";
import type { MongoStoreOptions } from "@sandgate/kit/storage/open-store";
import { describeOnMongo } from "@sandgate/test/stores";
import { expect, test } from "vitest";
import { createSandbox, endSandbox, now, sandboxOf } from "./store.fixture.ts";
import { openMongoStore } from "./store.mongo.ts";

/** A store with its database. */
async function openWithDatabase(options: MongoStoreOptions) {
  const { db, close } = await openMongo({ ...options, migrations: [] });
  const store = await openMongoStore(options);
  return {
    ...store,
    db,
    async close() {
      await store.close();
      await close();
    },
  };
}

await describeOnMongo("sandbox", openWithDatabase, (_, open) => {
  test("records that an earlier version deleted without subtracting them are counted anew, once a day", async () => {
    const store = await open();
    const workspaceId = newId();
    const sandboxes = store.db.collection<{ _id: string }>("sandboxes");
    const guards = store.db.collection<{ _id: string; recordBytes: number; recountedAt?: Date }>("guards");
    const bytes = sandboxOf({ workspaceId }).recordBytes ?? 0;
    const create = async () => {
      const { id } = await createSandbox(store, sandboxOf({ workspaceId }), { maxRecordBytes: 2 * bytes });
      return id;
    };
    const deleted = [await create(), await create()];
    await sandboxes.deleteMany({ _id: { $in: deleted } });

    const first = await create();
    const guard = await guards.findOne({ _id: workspaceId });
    expect(guard).toMatchObject({ recordBytes: bytes, recountedAt: expect.any(Date) });
    const ended = await store.sandboxes.get(first);
    if (ended) await endSandbox(store, ended);
    await store.unfinished.markCleaned(first, now());
    // The third evicts the first, and needs no count for that.
    for (const _ of [2, 3]) await create();
    expect(await store.sandboxes.get(first)).toBeUndefined();
    expect(await guards.findOne({ _id: workspaceId })).toMatchObject({
      recordBytes: 2 * bytes,
      recountedAt: guard?.recountedAt,
    });
    await store.close();
  });
});

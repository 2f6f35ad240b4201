import { createLogger } from "@sandgate/kit/base/logging";
import { createCollections, type MongoDatabase, openMongo } from "@sandgate/kit/storage/mongo";
import { probeMongo, startReplicaSet, type TestReplicaSet } from "@sandgate/test-support/mongo";
import { requireServer } from "@sandgate/test-support/require";
import { afterAll, beforeAll, describe, expect, test } from "vitest";

const writers = 8;
const writesBetween = 100;

describe.runIf(await requireServer("mongo", probeMongo))("a MongoDB replica set of three", () => {
  let replicaSet: TestReplicaSet;
  let database: MongoDatabase;

  beforeAll(async () => {
    replicaSet = await startReplicaSet({ members: 3 });
    database = await openMongo({
      url: replicaSet.url,
      name: "failover",
      migrations: [{ name: "1", run: (db) => createCollections(db, { notes: [], counters: [] }) }],
      logger: createLogger({ service: "test", level: "silent" }),
    });
  });
  afterAll(async () => {
    await database?.close();
    await replicaSet?.stop();
  });

  test("writes go on while primaries are killed: what was acknowledged is there, and nothing twice", {
    timeout: 300_000,
  }, async () => {
    const notes = database.db.collection<{ _id: string }>("notes");
    const counters = database.db.collection<{ _id: string; count: number }>("counters");
    const acknowledged = new Set<string>();
    const unknown = new Set<string>();
    let stopping = false;

    async function keepWriting(writer: number): Promise<void> {
      for (let number = 0; !stopping; number++) {
        const id = `${writer}/${number}`;
        try {
          await database.write(async (tx) => {
            await notes.insertOne({ _id: id }, { session: tx.session });
            // One for each writer, and one that all of them meet at.
            for (const counter of [`${writer}`, ...(number % 10 === 0 ? ["all"] : [])]) {
              await counters.updateOne({ _id: counter }, { $inc: { count: 1 } }, { upsert: true, session: tx.session });
            }
            await tx.publish([{ id, subject: "note.added", bytes: new Uint8Array([1]) }]);
          });
          acknowledged.add(id);
        } catch {
          unknown.add(id);
        }
      }
    }
    const writing = Array.from({ length: writers }, (_, writer) => keepWriting(writer));
    const awaitWrites = async () => {
      const target = acknowledged.size + writesBetween;
      while (acknowledged.size < target) await new Promise((resolve) => setTimeout(resolve, 20));
    };
    await awaitWrites();
    for (let kills = 0; kills < 2; kills++) {
      const primary = await replicaSet.primary();
      await primary.kill();
      await awaitWrites();
      await primary.start();
      await awaitWrites();
    }
    stopping = true;
    await Promise.all(writing);

    const stored = (await notes.find().toArray()).map(({ _id }) => _id);
    const kept = new Set(stored);
    expect([...acknowledged].filter((id) => !kept.has(id))).toEqual([]);
    expect(stored.filter((id) => !acknowledged.has(id) && !unknown.has(id))).toEqual([]);
    const events = (await database.outbox.unsent(1_000_000)).map(({ id }) => id);
    expect(events.sort()).toEqual(stored.sort());
    for (let writer = 0; writer < writers; writer++) {
      const own = stored.filter((id) => id.startsWith(`${writer}/`));
      expect((await counters.findOne({ _id: `${writer}` }))?.count).toBe(own.length);
    }
    expect((await counters.findOne({ _id: "all" }))?.count).toBe(stored.filter((id) => id.endsWith("0")).length);
  });

  test("a primary that falls silent in a transaction is given up: it runs once, on the next", async () => {
    const counters = database.db.collection<{ _id: string; count: number }>("counters");
    await counters.insertOne({ _id: "silent", count: 0 });
    const primary = await replicaSet.primary();
    let runs = 0;
    await database.write(async ({ session }) => {
      await counters.updateOne({ _id: "silent" }, { $inc: { count: 1 } }, { session });
      runs++;
      if (runs === 1) await primary.pause();
    });
    expect((await replicaSet.primary()).host).not.toBe(primary.host);
    primary.resume();
    expect(await counters.findOne({ _id: "silent" })).toMatchObject({ count: 1 });
    expect(runs).toBeGreaterThan(1);
  });
});

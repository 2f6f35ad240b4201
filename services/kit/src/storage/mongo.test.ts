import { setTimeout as delay } from "node:timers/promises";
import {
  probeMongo,
  type SharedMongo,
  startReplicaSet,
  type TestDatabase,
  useMongo,
} from "@sandgate/test-support/mongo";
import { requireServer } from "@sandgate/test-support/require";
import { until } from "@sandgate/test-support/until";
import { MongoClient } from "mongodb";
import { pino } from "pino";
import { afterAll, afterEach, beforeAll, beforeEach, describe, expect, test } from "vitest";
import { DomainError } from "../base/domain-error.ts";
import { newId } from "../base/ids.ts";
import { IdempotencyRecordExists, maxRecordBytes } from "./idempotency-record.ts";
import {
  createCollections,
  deleteBatch,
  isDuplicateKey,
  type MongoDatabase,
  type MongoMigration,
  openMongo,
} from "./mongo.ts";

const logger = pino({ enabled: false });
const migrations: readonly MongoMigration[] = [
  {
    name: "notes 1: notes",
    run: (db) => createCollections(db, { notes: [{ name: "text", key: { text: 1 }, unique: true }], counters: [] }),
  },
];

describe.runIf(await requireServer("mongo", probeMongo))("MongoDB", () => {
  let mongo: SharedMongo;
  let target: TestDatabase;
  let opened: MongoDatabase[];

  beforeAll(async () => {
    mongo = await useMongo();
  });
  afterAll(() => mongo.stop());
  beforeEach(async () => {
    target = await mongo.createDatabase();
    opened = [];
  });
  afterEach(async () => {
    await Promise.all(opened.map((database) => database.close()));
    await target.drop();
  });

  async function open(steps: readonly MongoMigration[] = migrations): Promise<MongoDatabase> {
    const database = await openMongo({ url: target.url, name: target.name, migrations: steps, logger });
    opened.push(database);
    return database;
  }

  const notesIn = ({ db }: MongoDatabase) => db.collection<{ _id: string; text: string; other?: number }>("notes");
  const countersIn = ({ db }: MongoDatabase) => db.collection<{ _id: string; count: number }>("counters");
  const event = (subject = "s") => ({ id: newId(), subject, bytes: new Uint8Array([1, 2]) });

  describe("transactions", () => {
    test("what a killed program left locked is free in seconds, not after the server's minute", async () => {
      const database = await open();
      await countersIn(database).insertOne({ _id: "c", count: 0 });
      const killed = new MongoClient(target.url, { appName: "sandgate" });
      const session = killed.startSession();
      session.startTransaction();
      const counters = killed.db(target.name).collection<{ _id: string; count: number }>("counters");
      await counters.updateOne({ _id: "c" }, { $inc: { count: 1 } }, { session });

      await database.write(async ({ session }) => {
        await countersIn(database).updateOne({ _id: "c" }, { $inc: { count: 10 } }, { session });
      });
      expect(await countersIn(database).findOne({ _id: "c" })).toMatchObject({ count: 10 });
      await expect(session.commitTransaction()).rejects.toMatchObject({
        errorLabels: expect.arrayContaining(["TransientTransactionError"]),
      });
      await killed.close();
    });

    test("state and events are stored together, and what throws leaves nothing", async () => {
      const database = await open();
      const staged = event();
      await database.write(async (tx) => {
        await notesIn(database).insertOne({ _id: "a", text: "a" }, { session: tx.session });
        await tx.publish([staged]);
      });
      const refusal = new DomainError("CONFLICT", "refused", { hint: "try another" });
      const refused = database.write(async (tx) => {
        await notesIn(database).insertOne({ _id: "b", text: "b" }, { session: tx.session });
        await tx.publish([event()]);
        throw refusal;
      });
      await expect(refused).rejects.toBe(refusal);
      expect(await notesIn(database).find().hint({ _id: 1 }).toArray()).toEqual([{ _id: "a", text: "a" }]);
      const [unsent, ...more] = await database.outbox.unsent(10);
      expect(unsent).toEqual({ ...staged, refusals: 0 });
      expect(more).toEqual([]);
    });

    test("those that meet at one document run again until each has had its turn", async () => {
      const database = await open();
      const counters = countersIn(database);
      const increments = Array.from({ length: 20 }, () =>
        database.write(async ({ session }) => {
          const before = await counters.findOne({ _id: "c" }, { session });
          const count = (before?.count ?? 0) + 1;
          await counters.updateOne({ _id: "c" }, { $set: { count } }, { upsert: true, session });
          return count;
        }),
      );
      const counts = await Promise.all(increments);
      expect(counts.sort((a, b) => a - b)).toEqual(Array.from({ length: 20 }, (_, i) => i + 1));
    });

    test("those that wait for a turn fail with one that could not reach the database, and later ones run", async () => {
      const database = await open();
      const unreachable = Object.assign(new Error("no server"), { name: "MongoServerSelectionError" });
      const failing = database.write(() => Promise.reject(unreachable), "turn");
      const waiting = database.write(async () => "ran", "turn");
      const other = database.write(async () => "ran", "other");
      await expect(failing).rejects.toBe(unreachable);
      await expect(waiting).rejects.toBe(unreachable);
      expect(await other).toBe("ran");
      expect(await database.write(async () => "ran", "turn")).toBe("ran");
    });

    test("those with the same turn run one after another in a process, after one that failed too", async () => {
      const database = await open();
      const runs: string[] = [];
      const run = (name: string) =>
        database.write(async () => {
          runs.push(`${name} begins`);
          await delay(5);
          runs.push(`${name} ends`);
          if (name === "a") throw new Error("failed");
        }, "turn");
      const outcomes = await Promise.allSettled(["a", "b", "c"].map(run));
      expect(outcomes.map(({ status }) => status)).toEqual(["rejected", "fulfilled", "fulfilled"]);
      expect(runs).toEqual(["a", "b", "c"].flatMap((name) => [`${name} begins`, `${name} ends`]));
    });

    test("a transaction that looks first finds what was committed at the same time under its unique key", async () => {
      const database = await open();
      const notes = notesIn(database);
      const outcomes = await Promise.all(
        ["a", "b", "c", "d"].map((id) =>
          database.write(async ({ session }) => {
            if (await notes.findOne({ text: "same" }, { session })) return "taken";
            await notes.insertOne({ _id: id, text: "same" }, { session });
            return "made";
          }),
        ),
      );
      expect(outcomes.sort()).toEqual(["made", "taken", "taken", "taken"]);
    });

    test("a unique index that stays violated reaches the caller", async () => {
      const database = await open();
      const add = (_id: string) =>
        database.write(async ({ session }) => {
          await notesIn(database).insertOne({ _id, text: "same" }, { session });
        });
      await add("a");
      const error: unknown = await add("b").catch((thrown: unknown) => thrown);
      expect(isDuplicateKey(error)).toBe(true);
      expect(isDuplicateKey(new Error("other"))).toBe(false);
    });

    test("closing waits for the writes under way and refuses later ones", async () => {
      const database = await open();
      const { promise: begun, resolve: begin } = Promise.withResolvers<void>();
      const slow = database.write(async ({ session }) => {
        await notesIn(database).insertOne({ _id: "slow", text: "slow" }, { session });
        begin();
        await delay(50);
      });
      await begun;
      await database.close();
      await slow;
      await expect(database.write(async () => undefined)).rejects.toThrow(/closed/);
      expect(await notesIn(await open()).findOne({ _id: "slow" })).not.toBeNull();
    });
  });

  describe("the outbox", () => {
    const stage = (database: MongoDatabase, ...subjects: string[]) =>
      database.write((tx) => tx.publish(subjects.map(event)));

    test("gives what is unsent, oldest first, until it is sent", async () => {
      const { outbox, ...database } = await open();
      for (const subject of ["one", "two", "three"]) {
        await stage({ outbox, ...database }, subject);
        await delay(2);
      }
      expect((await outbox.unsent(2)).map(({ subject }) => subject)).toEqual(["one", "two"]);
      expect(await outbox.backlog()).toMatchObject({ unsent: 3, oldestStagedAt: expect.any(Date) });
      const ids = (await outbox.unsent(10)).map(({ id }) => id);
      await outbox.markSent(ids, "bus");
      expect(await outbox.unsent(10)).toEqual([]);
      expect(await outbox.backlog()).toEqual({ unsent: 0, refused: 0, oldestStagedAt: undefined });
    });

    test("gives what the bus has refused once it is due, behind all others", async () => {
      const database = await open();
      const { outbox } = database;
      await stage(database, "poison", "later");
      const [poison, later] = await outbox.unsent(10);
      const refuse = (event: { id: string } | undefined, until: Date) =>
        outbox.postpone([{ id: event?.id ?? "", until }]);
      await refuse(poison, new Date(Date.now() - 1));
      await refuse(later, new Date(Date.now() + 60_000));
      await stage(database, "good");
      const given = (await outbox.unsent(10)).map(({ subject, refusals }) => [subject, refusals]);
      expect(given).toEqual([
        ["good", 0],
        ["poison", 1],
      ]);
      expect((await outbox.unsent(1)).map(({ subject }) => subject)).toEqual(["good"]);
      expect(await outbox.backlog()).toMatchObject({ unsent: 3, refused: 2 });
      await outbox.markSent([poison?.id ?? "", later?.id ?? ""], "bus 1");
      expect(await outbox.backlog()).toMatchObject({ unsent: 1, refused: 0 });
      expect(await outbox.resend("bus 2", 10)).toBe(2);
      expect((await outbox.unsent(10)).map(({ refusals }) => refusals)).toEqual([0, 0, 0]);
    });

    test("gives what the bus has refused without a long wait when the clock was set back meanwhile", async () => {
      const database = await open();
      const { outbox } = database;
      await stage(database, "refused before", "refused since");
      const [before, since] = await outbox.unsent(10);
      const now = Date.now();
      await outbox.postpone([{ id: before?.id ?? "", until: new Date(now + 3_600_000) }]);
      await outbox.postpone([{ id: since?.id ?? "", until: new Date(now + 60_000) }]);
      expect((await outbox.unsent(10)).map(({ subject }) => subject)).toEqual(["refused before"]);
    });

    test("gives again what another bus got", async () => {
      const database = await open();
      const { outbox } = database;
      await stage(database, "a", "b", "c");
      const [first, ...others] = (await outbox.unsent(10)).map(({ id }) => id);
      await outbox.markSent(others, "bus 1");
      await outbox.markSent([first ?? ""], "bus 2");
      expect(await outbox.resend("bus 2", 1)).toBe(1);
      expect(await outbox.resend("bus 2", 10)).toBe(1);
      expect(await outbox.resend("bus 2", 10)).toBe(0);
      expect((await outbox.unsent(10)).map(({ id }) => id).sort()).toEqual(others.sort());
    });

    test("wakes whoever listens in the process that committed, and the leader among the replicas", async () => {
      const [own, leader, idle] = [await open(), await open(), await open()];
      const woken: string[] = [];
      own.outbox.onStaged(() => woken.push("own"));
      leader.outbox.onStaged(() => woken.push("leader"));
      idle.outbox.onStaged(() => woken.push("idle"));
      expect(await leader.outbox.lead("leader", 60_000)).toBe(true);
      expect(await idle.outbox.lead("idle", 60_000)).toBe(false);
      await stage(own, "s");
      expect(woken).toContain("own");
      await until(() => expect(woken).toContain("leader"));
      expect(woken).not.toContain("idle");
    });
  });

  describe("leases", () => {
    test("have one holder, who renews and releases them", async () => {
      const { leases } = await open();
      expect(await leases.acquire(["one", "two"], "a", 60_000)).toEqual(expect.arrayContaining(["one", "two"]));
      expect(await leases.acquire(["one", "three"], "b", 60_000)).toEqual(["three"]);
      expect(await leases.acquire(["one"], "a", 60_000)).toEqual(["one"]);
      await leases.release(["one", "two"], "b");
      expect(await leases.acquire(["one"], "b", 60_000)).toEqual([]);
      await leases.release(["one"], "a");
      expect(await leases.acquire(["one"], "b", 60_000)).toEqual(["one"]);
      expect(await leases.acquire([], "b", 60_000)).toEqual([]);
      expect(await leases.listFree(["one", "two", "four"])).toEqual(["four"]);
      await leases.release(["two"], "a");
      expect(await leases.listFree(["one", "two", "four"])).toEqual(["two", "four"]);
    });

    test("go to another once they have expired", async () => {
      const { leases } = await open();
      await leases.acquire(["one"], "a", 1);
      await delay(5);
      expect(await leases.acquire(["one"], "b", 60_000)).toEqual(["one"]);
      expect(await leases.acquire(["one"], "a", 60_000)).toEqual([]);
    });

    test("are held by one of those who ask at once", async () => {
      const { leases } = await open();
      const names = Array.from({ length: 64 }, (_, shard) => `shard ${shard}`);
      const held = await Promise.all(["a", "b", "c"].map((holder) => leases.acquire(names, holder, 60_000)));
      expect(held.flat().sort()).toEqual(names.sort());
    });
  });

  test("batches that are deleted by several at once are full until nothing is left", async () => {
    const database = await open();
    const documents = Array.from({ length: 90 }, (_, number) => ({ _id: String(number), text: String(number) }));
    for (let round = 0; round < 5; round++) {
      await notesIn(database).insertMany(documents);
      const purge = async () => {
        while ((await deleteBatch(notesIn(database), { text: { $gte: "" } }, 10)) === 10);
        expect(await notesIn(database).countDocuments({ text: { $gte: "" } })).toBe(0);
      };
      await Promise.all([purge(), purge(), purge()]);
    }
  });

  test("the tests' databases notice operations that no index serves, also in a transaction", async () => {
    const scans: Record<string, (database: MongoDatabase) => Promise<unknown>> = {
      find: (database) => notesIn(database).findOne({ other: 1 }),
      update: (database) => notesIn(database).updateOne({ other: 1 }, { $set: { text: "b" } }),
      aggregate: (database) => notesIn(database).countDocuments({ other: 1 }),
      delete: (database) => database.write(({ session }) => notesIn(database).deleteOne({ other: 1 }, { session })),
      sort: (database) => notesIn(database).find({ text: "a" }).sort({ other: 1 }).toArray(),
    };
    for (const [name, scan] of Object.entries(scans)) {
      const own = await mongo.createDatabase();
      const database = await openMongo({ ...own, migrations, logger });
      await notesIn(database).insertOne({ _id: "a", text: "a" });
      await scan(database);
      await database.close();
      await expect(own.drop(), name).rejects.toThrow(/no index serves/);
    }
  });

  test("an answer is kept with what was created, by the first of those at once", async () => {
    const database = await open();
    const create = (text: string) =>
      database.write(async (tx) => {
        await tx.keepIdempotencyRecord({
          id: "record",
          sealed: Buffer.from(text),
          service: "notes",
          workspace: "",
          owner: "ann",
        });
        await notesIn(database).insertOne({ _id: text, text }, { session: tx.session });
      });
    const outcomes = await Promise.allSettled(["a", "b", "c"].map(create));
    const lost = outcomes.filter((outcome) => outcome.status === "rejected");
    expect(lost.map(({ reason }) => reason instanceof IdempotencyRecordExists)).toEqual([true, true]);
    const [note, ...others] = await notesIn(database).find().hint({ _id: 1 }).toArray();
    expect(others).toEqual([]);
    expect(Buffer.from((await database.idempotency.find("record"))?.sealed ?? []).toString()).toBe(note?.text);
    expect(await database.idempotency.find("other")).toBeUndefined();
  });

  test("an expired answer makes room for another", async () => {
    const database = await open();
    const record = (text: string) =>
      database.write((tx) =>
        tx.keepIdempotencyRecord({
          id: "record",
          sealed: Buffer.from(text),
          service: "notes",
          workspace: "",
          owner: "ann",
        }),
      );
    await record("old");
    const expired = { $set: { expiresAt: new Date(Date.now() - 1) } };
    await database.db.collection<{ _id: string }>("kit_answers").updateOne({ _id: "record" }, expired);
    expect(await database.idempotency.find("record")).toBeUndefined();
    await record("new");
    expect(Buffer.from((await database.idempotency.find("record"))?.sealed ?? []).toString()).toBe("new");
  });

  test("what the answers of an owner take in a day is limited", async () => {
    const database = await open();
    const keep = (id: string, bytes: number, owner = "w1") =>
      database.write((tx) =>
        tx.keepIdempotencyRecord({ id, sealed: new Uint8Array(bytes), service: "notes", workspace: "", owner }),
      );
    const part = maxRecordBytes / 4;
    await Promise.all(["a", "b", "c"].map((id) => keep(id, part)));
    await keep("d", part - 10_000);
    const refused = { reason: "RATE_LIMITED", retryAfterSeconds: expect.any(Number) };
    await expect(keep("e", 10_000)).rejects.toMatchObject(refused);
    expect(await database.idempotency.find("e")).toBeUndefined();
    await keep("e", 10_000, "w2");
    const usages = database.db.collection<{ _id: string }>("kit_answer_usages");
    await usages.updateOne({ _id: "w1" }, { $set: { endsAt: new Date(Date.now() - 1) } });
    await keep("f", 10_000);
  });

  describe("migrations", () => {
    test("run once, in their order, when several replicas start at once", async () => {
      const runs: string[] = [];
      const step = (name: string): MongoMigration => ({
        name,
        async run(db) {
          await delay(20);
          runs.push(name);
          await createCollections(db, { [name]: [] });
        },
      });
      const steps = [step("one"), step("two")];
      await Promise.all([open(steps), open(steps), open(steps), open(steps)]);
      await open([...steps, step("three")]);
      expect(runs).toEqual(["one", "two", "three"]);
    });

    test("a step adds an index to documents while a member of the replica set is down, and is logged before", {
      timeout: 300_000,
    }, async () => {
      const replicaSet = await startReplicaSet({ members: 3 });
      const logged: { step?: string; msg: string }[] = [];
      const write = (line: string) => void logged.push(JSON.parse(line));
      const openSet = async (steps: readonly MongoMigration[]) => {
        const own = { url: replicaSet.url, name: "set", logger: pino({}, { write }) };
        opened.push(await openMongo({ ...own, migrations: steps }));
        return opened.at(-1) as MongoDatabase;
      };
      try {
        const database = await openSet(migrations);
        await notesIn(database).insertOne({ _id: "a", text: "a", other: 1 });
        const primary = await replicaSet.primary();
        await replicaSet.members.find((member) => member !== primary)?.kill();
        const index = { name: "other", key: { other: 1 } };
        const step = {
          name: "notes 2: other",
          run: async (db: MongoDatabase["db"]) => {
            expect(logged.at(-1)).toMatchObject({ step: "notes 2: other", msg: "migrating a database" });
            await createCollections(db, { notes: [index] });
          },
        };
        await openSet([...migrations, step]);
        expect(await notesIn(database).indexExists(index.name)).toBe(true);
      } finally {
        await Promise.all(opened.splice(0).map((database) => database.close()));
        await replicaSet.stop();
      }
    });

    test("a step that failed is run again, with those after it", async () => {
      const runs: string[] = [];
      let works = false;
      const steps: MongoMigration[] = [
        { name: "one", run: async () => void runs.push("one") },
        {
          name: "two",
          async run() {
            if (!works) throw new Error("no luck");
            runs.push("two");
          },
        },
      ];
      await expect(open(steps)).rejects.toThrow("no luck");
      works = true;
      await open(steps);
      expect(runs).toEqual(["one", "two"]);
    });

    test("an inbox that the version before made is dropped, and that version works on beside", async () => {
      const client = await new MongoClient(target.url).connect();
      const db = client.db(target.name);
      await createCollections(db, { kit_inbox: [], kit_migrations: [] });
      await db
        .collection<{ _id: string }>("kit_migrations")
        .insertOne({ _id: "kit 1: outbox, inbox, answers, leases" });
      await open();
      expect(await db.listCollections({ name: "kit_inbox" }).toArray()).toEqual([]);
      // What a program asks that doesn't know a step: whether that expands.
      const step = await db.collection<{ _id: string }>("kit_migrations").findOne({ _id: "kit 2: no inbox" });
      expect(step).toMatchObject({ expands: true });
      await client.close();
    });

    test("a database of a newer program is refused, unless the step only added something", async () => {
      const added: MongoMigration = { name: "notes 2: added", expands: true, run: async () => undefined };
      await open([...migrations, added]);
      await open();
      await open([...migrations, added, { name: "notes 3: removed", run: async () => undefined }]);
      await expect(open()).rejects.toThrow(/newer version of Sandgate \(steps notes 3: removed\)/);
    });
  });
});

import { join } from "node:path";
import { setTimeout as delay } from "node:timers/promises";
import { createClient, createRouterTransport } from "@connectrpc/connect";
import { ErrorNoteSchema } from "@sandgate/proto/common/v1/error";
import { WorkspaceService } from "@sandgate/proto/workspace/v1/workspace";
import { probeMongo, type SharedMongo, useMongo } from "@sandgate/test-support/mongo";
import { requireServer } from "@sandgate/test-support/require";
import { createTempFolder } from "@sandgate/test-support/temp-folder";
import { until } from "@sandgate/test-support/until";
import { pino } from "pino";
import { afterAll, afterEach, beforeAll, beforeEach, describe, expect, test } from "vitest";
import { createMetrics } from "../base/metrics.ts";
import { openLocalBus } from "../events/bus.local.ts";
import type { EventBus } from "../events/bus.ts";
import { stageEvent } from "../events/outbox.ts";
import type { LeaseStore } from "../storage/leases.ts";
import { createCollections, openMongo } from "../storage/mongo.ts";
import type { OutboxStore } from "../storage/outbox-store.ts";
import { openSqlite } from "../storage/sqlite.ts";
import { createPurges as createMongoPurges, type GuardDocument, guardIndexes, purgedIndex } from "./mongo-guards.ts";
import { createPurges as createSqlitePurges } from "./sqlite-guards.ts";
import { createUnknownWorkspaces, type UnknownWorkspaces } from "./unknown-workspaces.ts";
import { migrations, type transactions } from "./workspace-purges.fixture.ts";
import { type PurgeStore, startWorkspacePurges } from "./workspace-purges.ts";

interface TestStore {
  purges: PurgeStore;
  leases: LeaseStore;
  outbox: OutboxStore;
  /** Stores the guard of a workspace in which something was created. */
  hold(workspaceId: string): Promise<unknown>;
  listGuards(): Promise<string[]>;
  close(): Promise<void>;
}

const logger = pino({ enabled: false });

async function openOnSqlite(): Promise<TestStore> {
  const folder = await createTempFolder();
  const database = await openSqlite<typeof transactions>({
    file: join(folder.path, "purges.sqlite"),
    migrations,
    transactions: new URL("./workspace-purges.fixture.ts", import.meta.url),
    logger,
  });
  const { read, write, leases, outbox } = database;
  return {
    purges: createSqlitePurges(read, write),
    leases,
    outbox,
    hold: write.hold,
    listGuards: async () =>
      read.all<{ id: string }>("SELECT workspace_id AS id FROM guards ORDER BY id").map(({ id }) => id),
    async close() {
      await database.close();
      await folder.remove();
    },
  };
}

let mongo: SharedMongo | undefined;

async function openOnMongo(): Promise<TestStore> {
  mongo ??= await useMongo();
  const target = await mongo.createDatabase();
  const migration = {
    name: "guards",
    run: (db: Parameters<typeof createCollections>[0]) =>
      createCollections(db, { guards: [...guardIndexes, purgedIndex] }),
  };
  const database = await openMongo({ url: target.url, name: target.name, migrations: [migration], logger });
  const { db, write, leases, outbox } = database;
  const guards = db.collection<GuardDocument>("guards");
  return {
    purges: createMongoPurges(guards, write),
    leases,
    outbox,
    hold: (workspaceId) => guards.insertOne({ _id: workspaceId }),
    listGuards: async () => (await guards.find().sort({ _id: 1 }).toArray()).map(({ _id }) => _id),
    async close() {
      await database.close();
      await target.drop();
    },
  };
}

const hasMongo = await requireServer("mongo", probeMongo);
const databases = [["SQLite", openOnSqlite] as const, ...(hasMongo ? [["MongoDB", openOnMongo] as const] : [])];
afterAll(() => mongo?.stop());

describe.each(databases)("purges of deleted workspaces on %s", (_, open) => {
  let store: TestStore;
  let bus: EventBus;
  let busFolder: Awaited<ReturnType<typeof createTempFolder>>;
  let running: { stop(): Promise<void> }[];

  beforeAll(async () => {
    busFolder = await createTempFolder();
    bus = await openLocalBus({ file: join(busFolder.path, "bus.sqlite"), logger, metrics: createMetrics() });
  });
  afterAll(async () => {
    await bus.close();
    await busFolder.remove();
  });
  beforeEach(async () => {
    store = await open();
    running = [];
  });
  afterEach(async () => {
    await Promise.all(running.map((each) => each.stop()));
    await store.close();
  });

  type Purge = (workspaceId: string, signal: AbortSignal) => Promise<boolean>;
  /** Another replica of the service, whose purge of a workspace this is. */
  async function startReplica(purge: Purge, leases = store.leases): Promise<void> {
    const workspacePurged = (entityId: string) =>
      stageEvent({
        subject: "sandgate.test.workspace.workspace_purged.v1",
        entityId,
        entityVersion: 1,
        schema: ErrorNoteSchema,
        payload: {},
      });
    running.push(
      await startWorkspacePurges({
        service: "test",
        store: store.purges,
        leases,
        bus,
        logger,
        purge,
        workspacePurged,
      }),
    );
  }
  /** Looks for workspaces that are not among those that exist, again after 50 ms. */
  function lookForUnknown(
    findExisting: (ids: readonly string[]) => readonly string[] | Promise<readonly string[]>,
    metrics = createMetrics(),
  ): UnknownWorkspaces {
    const transport = createRouterTransport(({ service }) => {
      service(WorkspaceService, {
        async batchGetWorkspaces({ workspaceIds }) {
          return { workspaces: (await findExisting(workspaceIds)).map((id) => ({ id })) };
        },
      });
    });
    const workspaces = createClient(WorkspaceService, transport);
    return createUnknownWorkspaces({ service: "test", store: store.purges, workspaces, logger, metrics, againMs: 50 });
  }
  const isDone = () => until(async () => expect(await store.purges.listOpenPurges()).toEqual([]));

  test("a workspace is purged by one replica at a time, and announced once", async () => {
    for (const id of ["w1", "w2", "w3"]) await store.purges.beginPurge(id, new Date());
    let atOnce = 0;
    let most = 0;
    let runs = 0;
    const purge: Purge = async () => {
      atOnce += 1;
      most = Math.max(most, atOnce);
      await delay(200);
      atOnce -= 1;
      runs += 1;
      return true;
    };
    await Promise.all([startReplica(purge), startReplica(purge), startReplica(purge)]);
    await isDone();
    expect({ most, runs, announced: (await store.outbox.unsent(10)).length }).toEqual({
      most: 1,
      runs: 3,
      announced: 3,
    });
  });

  test("another replica goes on with what one that died had begun", async () => {
    const { leases } = store;
    await leases.acquire(["kit.purges"], "dead", 3_600_000);
    await store.purges.beginPurge("w1", new Date());
    let left = 3;
    let asked = 0;
    const purge = async () => {
      left -= 1;
      return left === 0;
    };
    await startReplica(purge, {
      ...leases,
      acquire(...given) {
        asked += 1;
        return leases.acquire(...given);
      },
    });
    await until(() => expect(asked).toBeGreaterThan(1));
    expect(left).toBe(3);
    // What it holds expires.
    await leases.acquire(["kit.purges"], "dead", 1);
    await isDone();
    expect(left).toBe(0);
  });

  test("a replica that stops lets another go on at once", async () => {
    await store.purges.beginPurge("w1", new Date());
    const begun = Promise.withResolvers<void>();
    await startReplica(async (_id, signal) => {
      begun.resolve();
      while (!signal.aborted) await delay(10);
      return false;
    });
    await begun.promise;
    await running.pop()?.stop();
    expect(await store.leases.listFree(["kit.purges"])).toEqual(["kit.purges"]);
    await startReplica(async () => true);
    await isDone();
  });

  test("one that takes long and one that fails hold up no other", async () => {
    for (const id of ["a-long", "b-failing", "c"]) await store.purges.beginPurge(id, new Date());
    await startReplica(async (workspaceId, signal) => {
      if (workspaceId === "b-failing") throw new Error("a fault");
      if (workspaceId === "c") return true;
      while (!signal.aborted) await delay(10);
      return false;
    });
    await until(async () => expect((await store.purges.listOpenPurges()).toSorted()).toEqual(["a-long", "b-failing"]));
  });

  test("the guards of workspaces are forgotten a month after their purges, and no others", async () => {
    const day = 24 * 60 * 60 * 1000;
    const daysAgo = (days: number) => new Date(Date.now() - days * day);
    await store.hold("live");
    for (const [id, days] of Object.entries({ old: 31, older: 90, recent: 29 })) {
      await store.purges.beginPurge(id, daysAgo(100));
      await store.purges.completePurge(id, daysAgo(days), []);
    }
    await store.purges.beginPurge("open", daysAgo(100));
    expect(await store.purges.deletePurgedBefore(daysAgo(91), 10)).toBe(0);
    expect(await store.purges.deletePurgedBefore(daysAgo(30), 1)).toBe(1);
    await startReplica(async () => false);
    await until(async () => expect(await store.listGuards()).toEqual(["live", "open", "recent"]));
    expect(await store.purges.listOpenPurges()).toEqual(["open"]);
  });

  test("workspaces that the workspace service has lost are shown, and only those are purged that an operator names", async () => {
    const held = ["w1", "w2", "w3"].toSorted();
    for (const id of [...held, "deleted"]) await store.hold(id);
    await store.purges.beginPurge("deleted", new Date());
    await store.purges.completePurge("deleted", new Date(), []);
    let existing = held;
    const purged: string[] = [];
    await startReplica(async (workspaceId) => {
      purged.push(workspaceId);
      return true;
    });
    const metrics = createMetrics();
    const unknown = lookForUnknown((ids) => ids.filter((id) => existing.includes(id)), metrics);
    expect(await unknown.list()).toEqual({ count: 0, workspace_ids: [] });
    // A backup from before two of them were made is restored.
    existing = ["w1"];
    running.push(unknown.start());
    await until(() => expect(unknown.state()).toBe("workspaces that the workspace service doesn't know: 2"));
    expect(await metrics.metrics()).toContain('sandgate_unknown_workspaces{service="test"} 2');
    expect(await unknown.list()).toEqual({ count: 2, workspace_ids: ["w2", "w3"] });
    await expect(unknown.purge(["w1", "w2"])).rejects.toThrow("these exist: w1");
    expect(await store.purges.listOpenPurges()).toEqual([]);
    await unknown.purge(["w3"]);
    await until(() => expect(purged).toEqual(["w3"]));
    await until(() => expect(unknown.state()).toBe("workspaces that the workspace service doesn't know: 1"));
    expect(purged).toEqual(["w3"]);
    // As if an operator had had it purged at another replica.
    await store.purges.beginPurge("w2", new Date());
    await until(() => expect(unknown.state()).toBe("ok"));
  });

  test("a workspace whose deletion is on its way here is not taken for one that was lost", async () => {
    for (const id of ["w1", "w2", "w3"]) await store.hold(id);
    const states: string[] = [];
    // At each look another was just deleted, which is heard of before the next look.
    const unknown = lookForUnknown(async ([deleted = "", ...existing]) => {
      states.push(unknown.state());
      await store.purges.beginPurge(deleted, new Date());
      return existing;
    });
    running.push(unknown.start());
    await until(() => expect(states).toHaveLength(3));
    await delay(100);
    expect([...states, unknown.state()]).toEqual(["ok", "ok", "ok", "ok"]);
  });
});

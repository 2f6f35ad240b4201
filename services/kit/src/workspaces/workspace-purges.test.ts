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
import { createPurges as createMongoPurges, type GuardDocument, guardIndexes } from "./mongo-guards.ts";
import { createPurges as createSqlitePurges } from "./sqlite-guards.ts";
import { migrations, type transactions } from "./workspace-purges.fixture.ts";
import { type PurgeStore, startWorkspacePurges } from "./workspace-purges.ts";

interface TestStore {
  purges: PurgeStore;
  leases: LeaseStore;
  outbox: OutboxStore;
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
    run: (db: Parameters<typeof createCollections>[0]) => createCollections(db, { guards: guardIndexes }),
  };
  const database = await openMongo({ url: target.url, name: target.name, migrations: [migration], logger });
  const { db, write, leases, outbox } = database;
  return {
    purges: createMongoPurges(db.collection<GuardDocument>("guards"), write),
    leases,
    outbox,
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
    const workspaces = createClient(
      WorkspaceService,
      createRouterTransport(() => {}),
    );
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
        workspaces,
        logger,
        purge,
        workspacePurged,
      }),
    );
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
});

import { readFileSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import { probeMongo, useMongo } from "@sandgate/test-support/mongo";
import { requireServer } from "@sandgate/test-support/require";
import { test } from "@sandgate/test-support/test";
import { until } from "@sandgate/test-support/until";
import { pino } from "pino";
import { afterEach, describe, expect, vi } from "vitest";
import { createMetrics, type Metrics, printMetrics } from "../base/metrics.ts";
import { hourMs, minuteMs } from "../base/time.ts";
import type { LeaseStore } from "./leases.ts";
import { createCollections, openMongo } from "./mongo.ts";
import { startReencryption } from "./reencryption.ts";
import type { SealedColumn, SealedRow, SealedValues } from "./sealed-values.ts";
import { type Keyring, openKeyring } from "./sealing.ts";
import { openSqlite } from "./sqlite.ts";
import { sealedIndex } from "./sqlite-sealed.ts";

interface Row {
  id: string;
  sealed: Uint8Array | undefined;
  workspace?: string;
  service?: string;
}

interface Opened {
  sealed: SealedValues;
  leases: LeaseStore;
  cleanUp(): Promise<void>;
}

const logger = pino({ enabled: false });

const secrets: SealedColumn = { table: "secrets", column: "sealed", workspace: "workspace" };
const answers: SealedColumn = { table: "answers", column: "sealed", workspace: "workspace", service: "service" };

async function onSqlite(rows: Record<string, readonly Row[]>, folder: string): Promise<Opened> {
  const text = (value: string | undefined) => (value === undefined ? "NULL" : `'${value}'`);
  const migrations = Object.entries(rows).flatMap(([table, all]) => [
    `CREATE TABLE ${table} (id TEXT PRIMARY KEY, sealed BLOB, workspace TEXT, service TEXT) STRICT;
     ${sealedIndex({ table, column: "sealed" })}`,
    ...all.map(({ id, sealed, workspace, service }) => {
      const blob = sealed ? `X'${Buffer.from(sealed).toString("hex")}'` : "NULL";
      return `INSERT INTO ${table} VALUES (${text(id)}, ${blob}, ${text(workspace)}, ${text(service)})`;
    }),
  ]);
  const transactions = new URL("./sqlite.fixture.ts", import.meta.url);
  const database = await openSqlite({ file: join(folder, "secrets.sqlite"), migrations, transactions, logger });
  return { sealed: database.sealed, leases: database.leases, cleanUp: () => database.close() };
}

async function onMongo(rows: Record<string, readonly Row[]>): Promise<Opened> {
  const mongo = await useMongo();
  const { url, name, drop } = await mongo.createDatabase();
  const migrations = [
    {
      name: "1",
      run: (db: Parameters<typeof createCollections>[0]) => createCollections(db, { secrets: [], answers: [] }),
    },
  ];
  const database = await openMongo({ url, name, migrations, logger });
  for (const [table, all] of Object.entries(rows)) {
    const documents = all.map(({ id, ...row }) => ({ _id: id, ...row }));
    if (documents.length > 0) await database.db.collection<{ _id: string }>(table).insertMany(documents);
  }
  const cleanUp = async () => {
    await database.close();
    await drop();
    await mongo.stop();
  };
  return { sealed: database.sealed, leases: database.leases, cleanUp };
}

/** A key ring with a further key, which is the current one. Both hold the old key unless `dropped`. */
async function rotate(folder: string, dropped = false): Promise<{ old: Keyring; ring: Keyring }> {
  const file = join(folder, "keys.json");
  const old = await openKeyring({ file, create: true });
  const { keys } = JSON.parse(readFileSync(file, "utf8"));
  const next = Buffer.alloc(32, 7).toString("base64");
  const ringFile = join(folder, dropped ? "dropped.json" : "next.json");
  writeFileSync(ringFile, JSON.stringify({ current: "next", keys: dropped ? { next } : { ...keys, next } }));
  return { old, ring: await openKeyring({ file: ringFile, create: false }) };
}

const databases = [
  ["SQLite", true, onSqlite],
  ["MongoDB", await requireServer("mongo", probeMongo), onMongo],
] as const;

describe.each(databases)("sealed values on %s", (_name, isAvailable, open) => {
  const ended: (() => Promise<void>)[] = [];
  afterEach(async () => {
    for (const end of ended.splice(0).reverse()) await end();
  });

  async function start(o: { rows: Record<string, readonly Row[]>; ring: Keyring; folder: string }) {
    const opened = await open(o.rows, o.folder);
    ended.push(opened.cleanUp);
    const first = startReplica(opened, o.ring);
    return { ...first, startReplica: (ring: Keyring) => startReplica(opened, ring) };
  }

  function startReplica({ sealed, leases }: Opened, keyring: Keyring) {
    const metrics: Metrics = createMetrics();
    const columns = [secrets, answers];
    const acquire = vi.fn(leases.acquire);
    const task = startReencryption({
      service: "vault",
      sealed: { ...sealed, columns },
      leases: { ...leases, acquire },
      keyring,
      metrics,
      logger,
    });
    ended.push(() => task.stop());
    const counts = async () => {
      const lines = (await printMetrics([metrics], logger))
        .split("\n")
        .filter((line) => line.startsWith("sandgate_sealed"));
      return lines.map((line) => line.replace(/.*table="(\w+)",key="([^"]+)"} /, "$1 $2 ")).toSorted();
    };
    return { sealed, acquire, counts, ...task };
  }

  const place = (id: string, workspace?: string) => ({
    service: "vault",
    table: "secrets",
    record: id,
    ...(workspace !== undefined && { workspace }),
  });
  const answer = (id: string, workspace: string) => ({ service: "pkg.v1", table: "answers", record: id, workspace });

  test.runIf(isAvailable)(
    "are all sealed with the current key, so that the old one isn't needed",
    async ({ folder }) => {
      const { old, ring } = await rotate(folder);
      // More than a page.
      const ids = Array.from({ length: 230 }, (_, index) => `s${String(index).padStart(3, "0")}`);
      const rows = {
        secrets: [
          ...ids.map((id) => ({ id, sealed: old.seal(Buffer.from(`of ${id}`), place(id)) })),
          { id: "sent", sealed: undefined },
          { id: "t", sealed: old.seal(Buffer.from("of t"), place("t", "w")), workspace: "w" },
          { id: "u", sealed: ring.seal(Buffer.from("of u"), place("u")) },
          // Copied from another row, so it opens nowhere; the others don't wait for it.
          { id: "moved", sealed: old.seal(Buffer.from("of t"), place("t", "w")) },
        ],
        answers: [
          { id: "a", sealed: old.seal(Buffer.from("answer"), answer("a", "")), workspace: "", service: "pkg.v1" },
          { id: "b", sealed: old.seal(Buffer.from("answer"), answer("b", "w")), workspace: "w", service: "pkg.v1" },
        ],
      };
      const { sealed, counts, state } = await start({ rows, ring, folder });
      const unused = old.currentKeyId;
      await until(async () =>
        expect(await counts()).toEqual([`answers ${unused} 0`, `secrets ${unused} 0`, "secrets unknown 1"].toSorted()),
      );
      expect(state()).toBe("sealed values were damaged or copied; the log names them");
      const { ring: onlyNext } = await rotate(folder, true);
      const opened: string[] = [];
      for (let after: SealedRow | undefined; ; ) {
        const page = await sealed.listOthers(secrets, "none", 100, after);
        for (const { id, sealed: value, workspace } of page) {
          if (id !== "moved") opened.push(Buffer.from(onlyNext.open(value, place(id, workspace))).toString());
        }
        after = page.at(-1);
        if (page.length < 100) break;
      }
      expect(opened.toSorted()).toEqual([...ids, "t", "u"].map((id) => `of ${id}`));
      expect((await sealed.listOthers(secrets, "next", 10, undefined)).map(({ id }) => id)).toEqual(["moved"]);
      const [first] = await sealed.listOthers(answers, "none", 1, undefined);
      expect(Buffer.from(onlyNext.open(first?.sealed ?? new Uint8Array(), answer("a", ""))).toString()).toBe("answer");
    },
  );

  test.runIf(isAvailable)("of a key that the ring lacks are counted and left", async ({ folder }) => {
    const { old } = await rotate(folder);
    const { ring } = await rotate(folder, true);
    const rows = { secrets: [{ id: "s", sealed: old.seal(Buffer.from("x"), place("s")) }], answers: [] };
    const { counts, state } = await start({ rows, ring, folder });
    await until(async () => expect(await counts()).toContain(`secrets ${old.currentKeyId} 1`));
    expect(state()).toBe(`sealed values need keys that the key ring lacks: ${old.currentKeyId}`);
  });

  test.runIf(isAvailable)("are looked for by one replica of those with the same current key", async ({ folder }) => {
    const { old, ring } = await rotate(folder);
    const rows = { secrets: [], answers: [] };
    const first = await start({ rows, ring, folder });
    const unused = [`answers ${old.currentKeyId} 0`, `secrets ${old.currentKeyId} 0`];
    await until(async () => expect(await first.counts()).toEqual(unused));
    const second = first.startReplica(ring);
    await until(() => expect(second.acquire).toHaveResolvedWith([]));
    expect(await second.counts()).toEqual([]);
    // One with another current key doesn't wait for the first.
    const other = first.startReplica(old);
    await until(() => expect(other.acquire).toHaveResolvedWith([expect.stringContaining(old.currentKeyId)]));
    await first.stop();
    const third = first.startReplica(ring);
    await until(async () => expect(await third.counts()).toEqual(unused));
  });

  test.runIf(isAvailable)("that other keys seal are listed page by page, whatever their ids", async ({ folder }) => {
    const ringOf = async (id: string) => {
      const file = join(folder, `${id.length}${id.slice(0, 4)}.json`);
      writeFileSync(file, JSON.stringify({ current: id, keys: { [id]: Buffer.alloc(32, 1).toString("base64") } }));
      return openKeyring({ file, create: false });
    };
    // Before and after the current one, of which one begins like it, and one as long as ids may be.
    const keyIds = ["a", "k", "k1", "key", "z", `key${"y".repeat(252)}`];
    const rings = await Promise.all(keyIds.map(ringOf));
    const ids = Array.from({ length: 60 }, (_, number) => `s${number}`);
    const ringAt = (number: number) => rings[number % rings.length] as Keyring;
    const rows = ids.map((id, number) => ({ id, sealed: ringAt(number).seal(Buffer.from("x"), place(id)) }));
    const { sealed, cleanUp } = await open({ secrets: [...rows, { id: "gone", sealed: undefined }] }, folder);
    ended.push(cleanUp);
    const others = ids.filter((_, number) => ringAt(number).currentKeyId !== "key");
    const listed: string[] = [];
    for (let after: SealedRow | undefined, page: SealedRow[] = []; ; after = page.at(-1)) {
      page = await sealed.listOthers(secrets, "key", 7, after);
      listed.push(...page.map(({ id }) => id));
      if (page.length < 7) break;
    }
    expect(listed.toSorted()).toEqual(others.toSorted());
  });

  test.runIf(isAvailable)("that change meanwhile keep the change", async ({ folder }) => {
    const { old } = await rotate(folder);
    const value = old.seal(Buffer.from("x"), place("s"));
    const { sealed, cleanUp } = await open({ secrets: [{ id: "s", sealed: value }] }, folder);
    ended.push(cleanUp);
    const other = old.seal(Buffer.from("y"), place("s"));
    expect(await sealed.replace(secrets, [{ id: "s", before: other, after: value }])).toEqual([]);
    expect(await sealed.replace(secrets, [{ id: "s", before: value, after: other }])).toEqual(["s"]);
    const [row] = await sealed.listOthers(secrets, "none", 10, undefined);
    expect(row?.sealed).toEqual(new Uint8Array(other));
  });
});

test("after a pass that found nothing, the next comes an hour later", async ({ folder }) => {
  vi.useFakeTimers({ toFake: ["performance"] });
  const { old, ring } = await rotate(folder);
  const found = [{ id: "s", sealed: old.seal(Buffer.from("x"), { service: "vault", table: "secrets", record: "s" }) }];
  let turns = 0;
  let passes = 0;
  const task = startReencryption({
    service: "vault",
    sealed: {
      columns: [secrets],
      async listOthers() {
        passes += 1;
        return found.splice(0);
      },
      replace: async (_, changes) => changes.map(({ id }) => id),
    },
    leases: {
      async acquire(names) {
        turns += 1;
        return [...names];
      },
      listFree: async () => [],
      release: async () => undefined,
    },
    keyring: ring,
    metrics: createMetrics(),
    logger,
    everyMs: 1,
  });
  const takeTurns = async () => {
    const before = turns;
    await until(() => expect(turns).toBeGreaterThan(before + 3));
    return passes;
  };
  // The first has found something.
  expect(await takeTurns()).toBe(2);
  vi.advanceTimersByTime(hourMs - minuteMs);
  expect(await takeTurns()).toBe(2);
  vi.advanceTimersByTime(minuteMs);
  expect(await takeTurns()).toBe(3);
  await task.stop();
  vi.useRealTimers();
});

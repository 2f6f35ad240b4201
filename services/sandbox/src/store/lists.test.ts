import { join } from "node:path";
import { DatabaseSync } from "node:sqlite";
import { newId } from "@sandgate/kit/base/ids";
import { createLogger } from "@sandgate/kit/base/logging";
import { openMongo } from "@sandgate/kit/storage/mongo";
import { createConnection } from "@sandgate/kit/storage/sqlite-connection";
import { planStatements } from "@sandgate/test/plans";
import { probeMongo, useMongo } from "@sandgate/test-support/mongo";
import { requireServer } from "@sandgate/test-support/require";
import { test } from "@sandgate/test-support/test";
import { describe, expect } from "vitest";
import { acceptSandbox, fail, type Sandbox, type SandboxState } from "../domain/sandbox.ts";
import type { SandboxFilter } from "./sandboxes.ts";
import { withoutQuotas } from "./store.fixture.ts";
import { openMongoStore } from "./store.mongo.ts";
import { queries } from "./store.sqlite.queries.ts";
import { openSqliteStore } from "./store.sqlite.ts";
import type { SandboxStore } from "./store.ts";

const logger = createLogger({ service: "sandbox", level: "silent" });
const workspaceId = newId();
const startMs = Date.UTC(2026, 0, 1);

function sandboxOf(number: number, labels: Record<string, string>, name = `n-${number}`): Sandbox {
  return acceptSandbox({
    id: newId(),
    name,
    workspaceId,
    image: { imageId: "i1", reference: "registry.example/app:1", registryId: "", isDefault: false, memoryMb: 256 },
    labels,
    createdBy: "u1",
    now: new Date(startMs + number),
  });
}

/** Among the sandboxes of these states and labels there are none, or few, of each of the lists below. */
async function addSandboxes(store: SandboxStore): Promise<void> {
  const add = (sandbox: Sandbox) => store.sandboxes.create(sandbox, withoutQuotas);
  await add(sandboxOf(1, { purpose: "build", run: "1" }));
  await add(sandboxOf(2, { purpose: "build", run: "2" }, "web"));
  await add(sandboxOf(3, { purpose: "test", run: "3" }));
}

const after = { createdAt: new Date(startMs + 1_000_000), id: "" };
const filters: [string, SandboxFilter][] = [
  ["all", { states: [], labels: {} }],
  ["a state", { states: ["ready"], labels: {} }],
  ["several states", { states: ["provisioning", "ready", "stopping"], labels: {} }],
  ["every state", { states: ["provisioning", "ready", "stopping", "stopped", "failed"], labels: {} }],
  ["a label", { states: [], labels: { run: "1" } }],
  ["a label that most have, and a state", { states: ["ready"], labels: { kind: "ended" } }],
  ["a label that most have, and several states", { states: ["provisioning", "ready"], labels: { kind: "ended" } }],
  ["several labels", { states: [], labels: { kind: "ended", purpose: "build" } }],
  ["few of a name", { states: [], labels: {}, namePrefix: "we" }],
  ["few of a name, a state and a label", { states: ["ready"], labels: { kind: "ended" }, namePrefix: "n-1" }],
  ["several labels and a state", { states: ["provisioning"], labels: { purpose: "build", run: "2", kind: "ended" } }],
];
const pages: [string, { after?: typeof after }][] = [
  ["the first page", {}],
  ["a page further on", { after }],
];

describe("lists on SQLite", () => {
  /** What each statement of a list may go through, and nothing else. */
  const indexes = {
    all: /^SEARCH sandboxes USING COVERING INDEX sandboxes_newest \(workspace_id=\? AND \(created_at,id\)<\(\?,\?\)\)$/,
    state:
      /^SEARCH sandboxes USING COVERING INDEX sandboxes_by_state \(workspace_id=\? AND state=\? AND \(created_at,id\)<\(\?,\?\)\)$/,
    label: /^SEARCH label_keys USING PRIMARY KEY \(label=\? AND state=\? AND \(created_at,sandbox_id\)<\(\?,\?\)\)$/,
    point:
      /^(SEARCH sandboxes USING INDEX sqlite_autoindex_sandboxes_1 \(id=\?\)|SEARCH label_keys USING PRIMARY KEY \(label=\? AND state=\? AND created_at=\? AND sandbox_id=\?\))$/,
    states: /^(LIST SUBQUERY \d+|SCAN json_each VIRTUAL TABLE INDEX 1:)$/,
    merge: /^(MERGE \(UNION ALL\)|LEFT|RIGHT)$/,
  };

  test.for(filters.flatMap(([what, filter]) => pages.map(([page, o]) => ({ what, filter, page, ...o }))))(
    "an index has $page of $what in its order",
    async ({ filter, after }, { folder }) => {
      const file = join(folder, "sandbox.sqlite");
      const store = await openSqliteStore({ file, logger });
      await addSandboxes(store);
      await store.close();
      const db = new DatabaseSync(file, { readOnly: true });
      const labels = Object.entries(filter.labels).map(([name, value]) => ({ name, value }));
      const list = { workspaceId, states: filter.states, labels };
      const plans = await planStatements(file, () => queries.list(createConnection(db), list, after, 10));
      db.close();
      const main = labels.length > 0 ? indexes.label : filter.states.length > 0 ? indexes.state : indexes.all;
      expect(plans.filter((plan) => main.test(plan)).length).toBeGreaterThan(0);
      const known = [main, indexes.point, indexes.states, indexes.merge];
      expect(plans.filter((plan) => !known.some((pattern) => pattern.test(plan)))).toEqual([]);
    },
  );

  test.for([
    ["sandboxes_of_all (state=?", {}],
    ["sandboxes_of_user (<expr>=? AND state=?", { createdBy: "u1" }],
    ["sandboxes_of_user (<expr>=? AND state=?", { createdBy: "u1", workspaceId }],
    ["sandboxes_by_state (workspace_id=? AND state=?", { workspaceId }],
  ] as const)("an index has operators' lists in their order: %s", async ([index, filter], { folder }) => {
    const file = join(folder, "sandbox.sqlite");
    await (await openSqliteStore({ file, logger })).close();
    const db = new DatabaseSync(file, { readOnly: true });
    const any = { workspaceId: undefined, createdBy: undefined };
    for (const states of [[], ["ready", "failed"]] satisfies SandboxState[][]) {
      const list = () => queries.listAll(createConnection(db), { ...any, ...filter, states }, after, 10);
      const plans = (await planStatements(file, list)).filter((plan) => !indexes.merge.test(plan));
      expect(new Set(plans)).toEqual(new Set([`SEARCH sandboxes USING INDEX ${index} AND (created_at,id)<(?,?))`]));
    }
    db.close();
  });

  test("a name is looked up among the live, then among the ended in their order", async ({ folder }) => {
    const file = join(folder, "sandbox.sqlite");
    const store = await openSqliteStore({ file, logger });
    const plans = await planStatements(file, () => store.sandboxes.find(workspaceId, "web"));
    await store.close();
    expect(plans).toEqual([
      "SEARCH sandboxes USING INDEX sqlite_autoindex_sandboxes_1 (id=?)",
      "SEARCH sandboxes USING INDEX sandboxes_live_name (workspace_id=? AND name=?)",
      "SEARCH sandboxes USING INDEX sandboxes_by_name (workspace_id=? AND name=?)",
    ]);
  });

  test("of several labels the rarest is gone through, a bounded step at a time", async ({ folder }) => {
    const file = join(folder, "sandbox.sqlite");
    const store = await openSqliteStore({ file, logger });
    const half = 1_500;
    const all = Array.from({ length: 2 * half }, (_, number) =>
      sandboxOf(number, { side: number < half ? "old" : "new", [number < half ? "left" : "right"]: "yes", all: "yes" }),
    );
    await Promise.all(all.map((sandbox) => store.sandboxes.create(sandbox, withoutQuotas)));
    const list = (labels: Record<string, string>, namePrefix?: string) =>
      store.sandboxes
        .list(workspaceId, { states: [], labels, namePrefix }, { limit: 5 })
        .then((found) => found.map(({ id }) => id));
    const newest = (sandboxes: Sandbox[]) => sandboxes.map(({ id }) => id).reverse();
    expect(await list({ all: "yes", side: "old" })).toEqual(newest(all.slice(half - 5, half)));
    expect(await list({ right: "yes", side: "old" })).toEqual([]);
    // So many names begin so that they are looked for among the newest.
    expect(await list({}, "n-1")).toEqual(newest(all.slice(1_995, 2_000)));
    expect(await list({ side: "old" }, "n-1")).toEqual(newest(all.slice(half - 5, half)));
    expect(await list({}, "n-149")).toEqual(newest(all.slice(1_495, 1_500)));
    const rare = sandboxOf(half + 0.5, { all: "yes", rare: "yes" });
    await store.sandboxes.create(rare, withoutQuotas);
    expect(await list({ all: "yes", rare: "yes" })).toEqual([rare.id]);
    await store.close();

    const db = new DatabaseSync(file, { readOnly: true });
    const connection = createConnection(db);
    const label = (name: string, value = "yes") => ({ name, value });
    const several = { workspaceId, states: [], labels: [label("all"), label("rare")] };
    expect(queries.orderByRarity(connection, several)).toEqual([label("rare"), label("all")]);
    const step = queries.list(connection, { ...several, labels: [label("all"), label("left")] }, undefined, 5);
    expect(step).toEqual({ rows: [], next: { createdAt: new Date(startMs + 2_000), id: all[2_000]?.id } });
    db.close();
  });

  test("records of an earlier version are found by their labels", async ({ folder }) => {
    const file = join(folder, "sandbox.sqlite");
    const store = await openSqliteStore({ file, logger });
    const all = Array.from({ length: 2_500 }, (_, number) =>
      sandboxOf(number, number % 3 === 0 ? {} : { parity: number % 2 ? "odd" : "even", number: `${number}` }),
    );
    await Promise.all(all.map((sandbox) => store.sandboxes.create(sandbox, withoutQuotas)));
    await store.close();
    const earlier = new DatabaseSync(file);
    earlier.exec(`DROP TABLE label_keys; DROP TABLE envs; DROP TABLE preview_links; DROP TABLE previews; DROP INDEX sandboxes_cleaned; DROP INDEX guards_purged; ALTER TABLE guards DROP COLUMN record_bytes;
      ALTER TABLE guards DROP COLUMN failures; ALTER TABLE guards DROP COLUMN failures_until;
      CREATE TABLE labels (
        sandbox_id TEXT NOT NULL REFERENCES sandboxes (id) ON DELETE CASCADE, name TEXT NOT NULL, value TEXT NOT NULL,
        workspace_id TEXT NOT NULL, state TEXT NOT NULL, created_at INTEGER NOT NULL, PRIMARY KEY (sandbox_id, name)
      ) STRICT, WITHOUT ROWID;
      INSERT INTO labels SELECT sandboxes.id, label.key, label.value, workspace_id, state, created_at
        FROM sandboxes, json_each(record, '$.labels') AS label;
      DELETE FROM kit_migrations WHERE scope = 'service' AND version > 7`);
    earlier.close();

    const migrated = await openSqliteStore({ file, logger });
    for (const number of [1, 998, 1_000, 1_001, 2_000, 2_498]) {
      const found = await migrated.sandboxes.list(
        workspaceId,
        { states: [], labels: { number: `${number}` } },
        { limit: 10 },
      );
      expect(found.map(({ id }) => id)).toEqual(number % 3 === 0 ? [] : [all[number]?.id]);
    }
    const odd = await migrated.sandboxes.list(
      workspaceId,
      { states: ["provisioning"], labels: { parity: "odd" } },
      { limit: 5000 },
    );
    expect(odd).toHaveLength(all.filter(({ labels }) => labels.parity === "odd").length);
    await migrated.close();
  });
});

describe.runIf(await requireServer("mongo", probeMongo))("lists on MongoDB", () => {
  test("what a list goes through doesn't grow with ended sandboxes", { timeout: 60_000 }, async () => {
    const mongo = await useMongo();
    const { url, name, countExamined, drop } = await mongo.createDatabase();
    const plain = await openMongo({ url, name, migrations: [], logger });
    const store = await openMongoStore({ url, name, logger });
    try {
      await addSandboxes(store);
      const model = sandboxOf(0, { kind: "ended" });
      await store.sandboxes.create(model, withoutQuotas);
      await store.sandboxes.update(
        fail(model, { reason: "exited", message: "over", exitCode: 1 }, model.createdAt),
        [],
      );
      await store.unfinished.markCleaned(model.id, model.createdAt);

      const examined = async () => {
        const counts: Record<string, number> = {};
        for (const [what, filter] of filters) {
          for (const [page, o] of pages) {
            counts[`${page} of ${what}`] = await countExamined(() =>
              store.sandboxes.list(workspaceId, filter, { limit: 10, ...o }),
            );
          }
        }
        const any = { states: [], workspaceId: undefined, createdBy: undefined };
        counts.everywhere = await countExamined(() => store.sandboxes.listAll(any, { limit: 10, after: undefined }));
        counts["of a user"] = await countExamined(() =>
          store.sandboxes.listAll({ ...any, createdBy: "u1", states: ["ready"] }, { limit: 10, after }),
        );
        counts["a name"] = await countExamined(() => store.sandboxes.find(workspaceId, "web"));
        return counts;
      };
      const sandboxes = plain.db.collection<{ _id: string; createdAt: Date; name: string; state: SandboxState }>(
        "sandboxes",
      );
      const copy = await sandboxes.findOne({ _id: model.id });
      if (!copy) throw new Error("the sandbox was stored");
      let number = 0;
      const addEnded = (count: number) =>
        sandboxes.insertMany(
          Array.from({ length: count }, () => {
            number++;
            return {
              ...copy,
              _id: newId(),
              name: number % 2 ? "web" : `ended-${number}`,
              createdAt: new Date(startMs + 10 + number),
            };
          }),
        );
      // So many that a label is counted no further.
      await addEnded(1_100);
      const few = await examined();
      await addEnded(2_000);
      const many = await examined();
      const grown = Object.keys(many).filter((what) => (many[what] ?? 0) > (few[what] ?? 0) + 20);
      expect(grown.map((what) => `${what}: ${few[what]}, then ${many[what]}`)).toEqual([]);
      expect(Math.max(...Object.values(many))).toBeLessThan(2_500);
    } finally {
      await store.close();
      await plain.close();
      await drop();
      await mongo.stop();
    }
  });
});

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
import { openMongoStore } from "./store.mongo.ts";
import { queries } from "./store.sqlite.queries.ts";
import { openSqliteStore } from "./store.sqlite.ts";

const logger = createLogger({ service: "image-registry", level: "silent" });
const after = { createdAt: new Date(Date.UTC(2030, 0, 1)), id: "" };
const workspaceId = "w1";
const merged = ["MERGE (UNION ALL)", "LEFT", "RIGHT"];

describe("lists on SQLite", () => {
  const range = "(created_at,id)<(?,?)";
  const registryName = ["CORRELATED SCALAR SUBQUERY", "SEARCH r USING INDEX sqlite_autoindex_registries_1 (id=?)"];
  test.for([
    ["images", false, "images_by_workspace"],
    ["enabled images", true, "images_enabled"],
  ] as const)("an index has %s in their order", async ([, enabledOnly, index], { folder }) => {
    const file = join(folder, "image-registry.sqlite");
    await (await openSqliteStore({ file, logger })).close();
    const db = new DatabaseSync(file, { readOnly: true });
    for (const position of [undefined, after]) {
      const plans = await planStatements(file, () =>
        queries.listImages(createConnection(db), { workspaceId, enabledOnly }, position, 10),
      );
      const search = `SEARCH images USING INDEX ${index} (workspace_id=? AND ${range})`;
      const steps = plans.map((plan) => plan.replace(/ \d+$/, ""));
      expect([...new Set(steps)].sort()).toEqual([...merged, search, ...registryName].sort());
    }
    db.close();
  });

  test("an index has registries in their order", async ({ folder }) => {
    const file = join(folder, "image-registry.sqlite");
    await (await openSqliteStore({ file, logger })).close();
    const db = new DatabaseSync(file, { readOnly: true });
    const plans = await planStatements(file, () =>
      queries.listRegistries(createConnection(db), workspaceId, after, 10),
    );
    expect(plans).toEqual([`SEARCH registries USING INDEX registries_by_workspace (workspace_id=? AND ${range})`]);
    db.close();
  });
});

describe.runIf(await requireServer("mongo", probeMongo))("lists on MongoDB", () => {
  test("what a list goes through doesn't grow with the images", { timeout: 60_000 }, async () => {
    const mongo = await useMongo();
    const { url, name, countExamined, drop } = await mongo.createDatabase();
    const plain = await openMongo({ url, name, migrations: [], logger });
    const store = await openMongoStore({ url, name, logger });
    try {
      const images = plain.db.collection<{ _id: string; workspaceId: string; enabled: boolean; createdAt: Date }>(
        "images",
      );
      let number = 0;
      const add = (count: number) =>
        images.insertMany(
          Array.from({ length: count }, () => {
            number++;
            const createdAt = new Date(Date.UTC(2026, 0, 1) + number);
            // Few are enabled, and the oldest.
            return { _id: newId(), workspaceId: number % 2 ? workspaceId : "", enabled: number < 4, createdAt };
          }),
        );
      const examined = async () => {
        const counts: Record<string, number> = {};
        for (const enabledOnly of [false, true]) {
          for (const position of [undefined, after]) {
            counts[`${enabledOnly} ${position?.id}`] = await countExamined(() =>
              store.images.list({ workspaceId, enabledOnly }, position, 10),
            );
          }
        }
        return counts;
      };
      await add(50);
      const few = await examined();
      await add(2_000);
      expect(await examined()).toEqual(few);
      expect(Math.max(...Object.values(few))).toBeLessThan(50);
    } finally {
      await store.close();
      await plain.close();
      await drop();
      await mongo.stop();
    }
  });
});

import { mkdirSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import { DatabaseSync } from "node:sqlite";
import { pathToFileURL } from "node:url";
import { createLogger } from "@sandgate/kit/base/logging";
import { createMetrics } from "@sandgate/kit/base/metrics";
import { openLocalBus } from "@sandgate/kit/events/bus.local";
import { openSqlite, type QueryConnection, type Transaction } from "@sandgate/kit/storage/sqlite";
import { createConnection } from "@sandgate/kit/storage/sqlite-connection";
import { createTransaction, kitTransactions } from "@sandgate/kit/storage/sqlite-kit";
import { test } from "@sandgate/test-support/test";
import { expect } from "vitest";
import { planStatements } from "./plans.ts";

const logger = createLogger({ service: "test", level: "silent" });

interface Statements {
  transactions: { run(tx: Transaction, sql: string): unknown };
  queries: { run(db: QueryConnection, sql: string): unknown };
}

test.for([
  ["SELECT * FROM things", "SCAN things"],
  ["SELECT * FROM things AS leases ORDER BY id", "SCAN leases"],
  ["SELECT * FROM things WHERE id = 'a' ORDER BY size", "USE TEMP B-TREE FOR ORDER BY"],
  ["SELECT * FROM kit_leases JOIN things ON things.size = kit_leases.expires_at", "SEARCH things USING AUTOMATIC"],
  ["DELETE FROM things WHERE size = 1", "SCAN things"],
  ["SELECT * FROM things WHERE id IN (SELECT value FROM json_each('[]'))", undefined],
  ["SELECT * FROM kit_leases ORDER BY expires_at", undefined],
] as const)(
  "every thread refuses a statement of a store that no index answers: %s",
  async ([sql, step], { folder }) => {
    mkdirSync(join(folder, "src"));
    const module = pathToFileURL(join(folder, "src/statements.mjs"));
    const run = "{ run: (store, sql) => void (store.db ?? store).all(sql) }";
    writeFileSync(module, `export const transactions = ${run};\nexport const queries = ${run};\n`);
    const { queries }: Statements = await import(module.href);
    const database = await openSqlite<Statements["transactions"], Statements["queries"]>({
      file: join(folder, "things.sqlite"),
      migrations: ["CREATE TABLE things (id TEXT, size INTEGER) STRICT; CREATE INDEX things_by_id ON things (id);"],
      transactions: module,
      queries: module,
      logger,
    });
    const runs = [
      () => database.write.run(sql),
      () => database.query.run(sql),
      async () => queries.run(database.read, sql),
    ];
    for (const attempt of runs) {
      if (step === undefined) await attempt();
      else await expect(attempt()).rejects.toThrow(`no index answers this statement (${step}`);
    }
    await database.close();
  },
);

test("what another bus has received is found without reading the rest", async ({ folder }) => {
  const file = join(folder, "events.sqlite");
  await (await openLocalBus({ file, logger, metrics: createMetrics() })).close();
  const db = new DatabaseSync(file);
  const tx = createTransaction(createConnection(db), () => undefined);
  const plan = await planStatements(file, () => kitTransactions.resend(tx, "bus", 10));
  db.close();
  expect(plan.filter((step) => step.includes("sent_"))).toEqual([
    "SEARCH kit_outbox USING INDEX kit_outbox_sent_to (sent_to<?)",
    "SEARCH kit_outbox USING INDEX kit_outbox_sent_to (sent_to>?)",
  ]);
});

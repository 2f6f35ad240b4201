import { copyFileSync, globSync, renameSync, rmSync } from "node:fs";
import { join } from "node:path";
import { test } from "@sandgate/test-support/test";
import { pino } from "pino";
import { expect } from "vitest";
import { messageOf } from "../base/domain-error.ts";
import { migrations, type queries, type transactions } from "./sqlite.fixture.ts";
import { openSqlite, type SqliteMigration } from "./sqlite.ts";

const fixture = new URL("./sqlite.fixture.ts", import.meta.url);

function open(file: string, steps: readonly SqliteMigration[]) {
  return openSqlite<typeof transactions, typeof queries>({
    file,
    migrations: steps,
    transactions: fixture,
    queries: fixture,
    logger: pino({ enabled: false }),
  });
}

test("a program that refuses a newer one's database says how to go back, also where that one was killed", async ({
  folder,
}) => {
  const file = join(folder, "notes.sqlite");
  const old = await open(file, migrations);
  await old.write.addNote("before");
  await old.close();
  const newer = await open(file, [...migrations, "ALTER TABLE notes ADD COLUMN text TEXT"]);
  for (let number = 0; number < 50; number++) await newer.write.addNote(`${number} ${"x".repeat(10_000)}`);
  // What a process that was killed leaves, and one that ends doesn't.
  const leftover = ["-wal", "-shm"].map((suffix) => `${file}${suffix}`);
  for (const each of leftover) copyFileSync(each, `${each}.kept`);
  await newer.close();
  for (const each of leftover) renameSync(`${each}.kept`, each);

  const refusal = messageOf(await open(file, migrations).catch((error: unknown) => error));
  const [, first = "", second = "", copies = "", to = ""] =
    /newer version.*delete (\S+) and (\S+), then rename the newest (\S+) to (\S+)$/.exec(refusal) ?? [];
  expect([first, second, to]).toEqual([...leftover, file]);
  for (const each of leftover) rmSync(each, { force: true });
  const [copy = "", ...others] = globSync(copies);
  expect(others).toEqual([]);
  renameSync(copy, file);

  const again = await open(file, migrations);
  expect(again.read.all("SELECT id FROM notes")).toEqual([{ id: "before" }]);
  expect(again.read.all("PRAGMA integrity_check")).toEqual([{ integrity_check: "ok" }]);
  await again.close();
});

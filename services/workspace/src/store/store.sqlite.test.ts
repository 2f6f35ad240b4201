import { join } from "node:path";
import { DatabaseSync } from "node:sqlite";
import { createLogger } from "@sandgate/kit/base/logging";
import { openSqlite } from "@sandgate/kit/storage/sqlite";
import { Role } from "@sandgate/proto/common/v1/access";
import { planStatements } from "@sandgate/test/plans";
import { describeOnSqlite } from "@sandgate/test/stores";
import { test } from "@sandgate/test-support/test";
import { expect } from "vitest";
import { describeWorkspaceStore } from "./store.contract.ts";
import { migrations, openSqliteStore } from "./store.sqlite.ts";

const logger = createLogger({ service: "workspace", level: "silent" });

describeOnSqlite("workspace", openSqliteStore, describeWorkspaceStore);

test("workspaces of an earlier version are listed in their order", async ({ folder }) => {
  const options = { file: join(folder, "workspace.sqlite"), logger };
  const store = await openSqliteStore(options);
  const quotas = { maxOwned: 0, maxMembers: 0 };
  for (const day of [2, 1, 3]) {
    const at = new Date(Date.UTC(2026, 0, day));
    const workspace = { id: `w${9 - day}`, name: `of day ${day}`, createdAt: at, updatedAt: at, version: 1 };
    expect(await store.workspaces.create(workspace, "u1", quotas, [], undefined)).toBe("done");
  }
  await store.close();
  const earlier = new DatabaseSync(options.file);
  earlier.exec(`DROP INDEX members_of_user; ALTER TABLE members DROP COLUMN workspace_created_at;
    CREATE INDEX members_by_user ON members (user_id); CREATE INDEX members_by_role ON members (user_id, role);
    DROP INDEX deletions_oldest; DROP INDEX workspaces_by_charge; ALTER TABLE workspaces DROP COLUMN charged_to;
    ALTER TABLE workspaces DROP COLUMN charged_since;
    DROP INDEX deletions_completed; DROP INDEX departed_users_by_time;
    DELETE FROM kit_migrations WHERE scope = 'service' AND version > 2`);
  earlier.close();
  const migrated = await openSqliteStore(options);
  const listed = await migrated.workspaces.list("u1", undefined, 10);
  expect(listed.map(({ id }) => id)).toEqual(["w6", "w7", "w8"]);
  await migrated.close();
});

test("an index has each list in its order", async ({ folder }) => {
  const file = join(folder, "workspace.sqlite");
  const store = await openSqliteStore({ file, logger });
  const after = { role: Role.OWNER, createdAt: new Date(), id: "w1" };
  expect(await planStatements(file, () => store.workspaces.list("u1", after, 10))).toEqual([
    "SEARCH m USING COVERING INDEX members_of_user (user_id=? AND (role,workspace_created_at,workspace_id)<(?,?,?))",
    "SEARCH w USING INDEX sqlite_autoindex_workspaces_1 (id=?)",
  ]);
  expect(await planStatements(file, () => store.members.list("w1", after, 10))).toEqual([
    "SEARCH members USING INDEX members_by_joining (workspace_id=? AND (joined_at,user_id)<(?,?))",
  ]);
  await store.close();
});

test("the quota owner of an earlier version's workspaces is the owner who joined first", async ({ folder }) => {
  const file = join(folder, "workspace.sqlite");
  const transactions = new URL("./store.sqlite.transactions.ts", import.meta.url);
  const earlier = await openSqlite({ file, migrations: migrations.slice(0, 2), transactions, logger });
  await earlier.close();
  const database = new DatabaseSync(file);
  database.exec(`
    INSERT INTO workspaces (id, name, created_at, updated_at, version) VALUES ('w', 'Old', 1, 1, 7);
    INSERT INTO members (workspace_id, user_id, role, joined_at) VALUES ('w', 'ann', 1, 1), ('w', 'bob', 3, 3), ('w', 'carl', 3, 2);
  `);
  database.close();
  const store = await openSqliteStore({ file, logger });
  expect(await store.workspaces.findQuotaOwners(["w"])).toEqual([
    { workspaceId: "w", userId: "carl", since: 7, abandoned: false },
  ]);
  await store.close();
});

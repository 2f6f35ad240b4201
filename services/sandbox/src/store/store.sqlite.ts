import { newId } from "@sandgate/kit/base/ids";
import { type SqliteStoreOptions, serviceStoreOf } from "@sandgate/kit/storage/open-store";
import type { SealedColumn } from "@sandgate/kit/storage/sealed-values";
import { openSqlite, type SqliteDatabase } from "@sandgate/kit/storage/sqlite";
import { createPurges } from "@sandgate/kit/workspaces/sqlite-guards";
import { createImageUses } from "./image-uses.sqlite.ts";
import { createPreviews } from "./previews.sqlite.ts";
import { createActivity, createRetention, createSandboxes, createUnfinishedSandboxes } from "./sandboxes.sqlite.ts";
import type { queries } from "./store.sqlite.queries.ts";
import { migrations, type transactions } from "./store.sqlite.transactions.ts";
import type { SandboxStore } from "./store.ts";

export type Database = SqliteDatabase<typeof transactions, typeof queries>;

const sealedColumns: readonly SealedColumn[] = [{ table: "envs", column: "sealed", workspace: "workspace_id" }];

/** Opens the SQLite file of sandboxes; creates or migrates it first. */
export async function openSqliteStore(o: SqliteStoreOptions): Promise<SandboxStore> {
  const database: Database = await openSqlite({
    file: o.file,
    migrations,
    transactions: new URL("./store.sqlite.transactions.ts", import.meta.url),
    queries: new URL("./store.sqlite.queries.ts", import.meta.url),
    logger: o.logger,
  });
  const { read, write } = database;
  return {
    ...serviceStoreOf(database, sealedColumns),
    sandboxes: createSandboxes(database),
    unfinished: createUnfinishedSandboxes(database),
    activity: createActivity(database),
    retention: createRetention(database),
    quotaOwners: { assign: write.assignQuotaOwner },
    imageUses: createImageUses(database),
    previews: createPreviews(database),
    purges: createPurges(read, write),
    installation: { findId: () => write.installationId(newId()) },
  };
}

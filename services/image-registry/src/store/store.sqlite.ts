import { type SqliteStoreOptions, serviceStoreOf } from "@sandgate/kit/storage/open-store";
import type { SealedColumn } from "@sandgate/kit/storage/sealed-values";
import { openSqlite } from "@sandgate/kit/storage/sqlite";
import { createPurges } from "@sandgate/kit/workspaces/sqlite-guards";
import { createImages } from "./images.sqlite.ts";
import { createRegistries } from "./registries.sqlite.ts";
import type { queries } from "./store.sqlite.queries.ts";
import type { transactions } from "./store.sqlite.transactions.ts";
import type { ImageRegistryStore } from "./store.ts";
import { migrations } from "./tables.sqlite.ts";
import { createVerifiedLayers } from "./verified-layers.sqlite.ts";

const sealedColumns: readonly SealedColumn[] = [
  { table: "registries", column: "sealed_password", workspace: "workspace_id" },
];

/** Opens the service's SQLite file, creating and migrating it as needed. */
export async function openSqliteStore(options: SqliteStoreOptions): Promise<ImageRegistryStore> {
  const database = await openSqlite<typeof transactions, typeof queries>({
    ...options,
    migrations,
    transactions: new URL("./store.sqlite.transactions.ts", import.meta.url),
    queries: new URL("./store.sqlite.queries.ts", import.meta.url),
  });
  const { read, write } = database;
  return {
    ...serviceStoreOf(database, sealedColumns),
    images: createImages(database),
    registries: createRegistries(database),
    verifiedLayers: createVerifiedLayers(database),
    purges: { ...createPurges(read, write), deleteBatch: write.deletePurgeBatch },
  };
}

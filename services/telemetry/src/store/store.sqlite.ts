import { type SqliteStoreOptions, serviceStoreOf } from "@sandgate/kit/storage/open-store";
import { openSqlite } from "@sandgate/kit/storage/sqlite";
import { createPurges } from "@sandgate/kit/workspaces/sqlite-guards";
import { createAuditLog } from "./audit.sqlite.ts";
import { totalLogBytes } from "./retention.sqlite.transactions.ts";
import { createSources } from "./sources.sqlite.ts";
import { migrations } from "./store.sqlite.migrations.ts";
import type { queries } from "./store.sqlite.queries.ts";
import type { transactions } from "./store.sqlite.transactions.ts";
import type { TelemetryStore } from "./store.ts";

/** Opens the SQLite file of logs and samples, after creating or migrating it. */
export async function openSqliteStore(o: SqliteStoreOptions): Promise<TelemetryStore> {
  const database = await openSqlite<typeof transactions, typeof queries>({
    file: o.file,
    migrations,
    transactions: new URL("./store.sqlite.transactions.ts", import.meta.url),
    queries: new URL("./store.sqlite.queries.ts", import.meta.url),
    // Chunks of logs are large.
    ownWriter: true,
    logger: o.logger,
  });
  const { read, query, write } = database;

  return {
    ...serviceStoreOf(database),
    sources: createSources(database),
    chunks: { list: query.listChunks, listAfter: query.listChunksAfter },
    retention: {
      sweepExpired: write.sweepExpired,
      async trimTotal(totalBytes) {
        // Asked here first, so that the file is written only when there is something to do.
        const isOver = totalLogBytes(read) > totalBytes;
        return isOver ? write.trimTotal(totalBytes) : { lines: 0, more: false };
      },
      purgeBatch: write.purgeBatch,
    },
    purges: createPurges(read, write),
    audit: createAuditLog(database),
    file: {
      reusableBytes() {
        const pages = read.get<{ freelist_count: number }>("PRAGMA freelist_count")?.freelist_count ?? 0;
        return pages * (read.get<{ page_size: number }>("PRAGMA page_size")?.page_size ?? 0);
      },
    },
  };
}

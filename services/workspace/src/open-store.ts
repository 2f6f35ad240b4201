import type { AnswerStore } from "@sandgate/kit/idempotency";
import type { OutboxStore } from "@sandgate/kit/outbox";
import type { ServiceEnvironment } from "@sandgate/kit/service";
import type { WorkspaceStore } from "./store.ts";

/** The store with what the kit keeps in the same database. */
export interface OpenedStore {
  readonly store: WorkspaceStore;
  readonly outbox: OutboxStore;
  readonly answers: AnswerStore;
  close(): Promise<void>;
}

/** Opens the service's database. Only the adapter that is chosen is loaded. */
export async function openStore({
  database,
  logger,
}: Pick<ServiceEnvironment, "database" | "logger">): Promise<OpenedStore> {
  if (database.kind === "mongodb") {
    const { openMongoStore } = await import("./store.mongo.ts");
    return openMongoStore({ url: database.url, name: database.name, logger });
  }
  const { openSqliteStore } = await import("./store.sqlite.ts");
  return openSqliteStore({ file: database.file, logger });
}

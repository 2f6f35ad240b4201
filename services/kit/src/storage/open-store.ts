import type { AnswerStore } from "../rpc/idempotency.ts";
import type { Logger } from "../base/logging.ts";
import type { OutboxStore } from "./outbox-store.ts";
import type { ServiceEnvironment } from "../process/service.ts";

/** A service's store with what the kit keeps in the same database. */
export interface OpenedStore<S> {
  readonly store: S;
  readonly outbox: OutboxStore;
  readonly answers: AnswerStore;
  close(): Promise<void>;
}

export interface SqliteStoreOptions {
  file: string;
  logger: Logger;
}

export interface MongoStoreOptions {
  /** Of the replica set. */
  url: string;
  /** The database's. */
  name: string;
  logger: Logger;
}

/** A service's store on each database, as modules that are imported only when they are chosen. */
interface StoreAdapters<S> {
  sqlite(): Promise<{ openSqliteStore(o: SqliteStoreOptions): Promise<S> }>;
  mongodb(): Promise<{ openMongoStore(o: MongoStoreOptions): Promise<S> }>;
}

/** Opens a service's store on the database that its process was given. The other database's adapter is not loaded. */
export async function openStore<S>(
  { database, logger }: Pick<ServiceEnvironment, "database" | "logger">,
  adapters: StoreAdapters<S>,
): Promise<S> {
  if (database.kind === "mongodb") {
    const { openMongoStore } = await adapters.mongodb();
    return openMongoStore({ url: database.url, name: database.name, logger });
  }
  const { openSqliteStore } = await adapters.sqlite();
  return openSqliteStore({ file: database.file, logger });
}

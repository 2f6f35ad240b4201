import type { Logger } from "../base/logging.ts";
import type { IdempotencyStore } from "./idempotency-record.ts";
import type { LeaseStore } from "./leases.ts";
import type { OutboxStore } from "./outbox-store.ts";
import { kitSealedColumns, type SealedColumn, type SealedStore, type SealedValues } from "./sealed-values.ts";

/** Where a service keeps its data: a file of its own, or a database of its own on a MongoDB replica set. */
export type DatabaseTarget = { kind: "sqlite"; file: string } | { kind: "mongodb"; url: string; name: string };

/** What the kit keeps in a service's database, which the service's own store extends. */
export interface ServiceStore {
  readonly outbox: OutboxStore;
  readonly idempotency: IdempotencyStore;
  readonly leases: LeaseStore;
  readonly sealed: SealedStore;
  /** Waits for the writes in progress. Nothing is called afterwards. */
  close(): Promise<void>;
}

/** The kit's part of a service's store, as its database has it. Every column that the service itself seals is in `sealedColumns`. */
export function serviceStoreOf(
  database: Omit<ServiceStore, "sealed"> & { sealed: SealedValues },
  sealedColumns: readonly SealedColumn[] = [],
): ServiceStore {
  const { outbox, idempotency, leases, sealed, close } = database;
  return {
    outbox,
    idempotency,
    leases,
    sealed: { ...sealed, columns: [...kitSealedColumns, ...sealedColumns] },
    close,
  };
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
export interface StoreAdapters<S> {
  sqlite(): Promise<{ openSqliteStore(o: SqliteStoreOptions): Promise<S> }>;
  mongodb(): Promise<{ openMongoStore(o: MongoStoreOptions): Promise<S> }>;
}

/** Opens a service's store on the database that its process was given. The other database's adapter is not loaded. */
export async function openStore<S>(
  { database, logger }: { database: DatabaseTarget; logger: Logger },
  adapters: StoreAdapters<S>,
): Promise<S> {
  if (database.kind === "mongodb") {
    const { openMongoStore } = await adapters.mongodb();
    return openMongoStore({ url: database.url, name: database.name, logger });
  }
  const { openSqliteStore } = await adapters.sqlite();
  return openSqliteStore({ file: database.file, logger });
}

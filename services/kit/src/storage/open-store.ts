import type { Logger } from "../base/logging.ts";
import type { IdempotencyStore } from "./idempotency-record.ts";
import type { LeaseStore } from "./leases.ts";
import type { OutboxStore } from "./outbox-store.ts";
import { kitSealedColumns, type SealedColumn, type SealedStore, type SealedValues } from "./sealed-values.ts";

/** Where a service keeps its data: in a file of its own, or in a database of its own on a MongoDB replica set. */
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

/** Returns the kit's part of a service's store. `sealedColumns` names every column that the service itself seals. */
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
  /** The address of the replica set. */
  url: string;
  /** The name of the database. */
  name: string;
  logger: Logger;
}

/** The modules of a service's store adapters. Only the chosen one is imported. */
export interface StoreAdapters<S> {
  sqlite(): Promise<{ openSqliteStore(o: SqliteStoreOptions): Promise<S> }>;
  mongodb(): Promise<{ openMongoStore(o: MongoStoreOptions): Promise<S> }>;
}

/** Opens a service's store on the database that its process was given, without loading the other adapter. */
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

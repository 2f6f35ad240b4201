import { randomUUID } from "node:crypto";
import { setTimeout as delay } from "node:timers/promises";
import { type Collection, type Db, type IndexDescription, MongoServerError } from "mongodb";
import type { Logger } from "../base/logging.ts";
import { type LeaseStore, runLeased } from "./leases.ts";

/**
 * One step of a database's schema. A step must be repeatable, since a crash may interrupt it. Programs of the previous
 * version run beside it, so what it replaces is removed by a step of a later version.
 */
export interface MongoMigration {
  /** The name is recorded in the database, so it never changes. */
  readonly name: string;
  /**
   * Whether programs that don't know this step can work on a database that has it, because it only adds something or
   * removes what they never use.
   */
  readonly expands?: true;
  run(db: Db): Promise<void>;
}

interface MigrationDocument {
  _id: string;
  at: Date;
  expands?: true;
}

const leaseName = "kit.migrations";
/** How long the others wait for a replica that died while it migrated. */
const leaseMs = 30_000;
const pollMs = 200;

/**
 * Creates collections with their indexes, which must exist before a transaction writes to them. Existing ones stay. The
 * only way to create indexes: a majority of the replica set is enough for them, as for writes.
 */
export async function createCollections(
  db: Db,
  collections: Record<string, readonly IndexDescription[]>,
): Promise<void> {
  for (const [name, indexes] of Object.entries(collections)) {
    await db.createCollection(name).catch((error: unknown) => {
      const exists = error instanceof MongoServerError && error.codeName === "NamespaceExists";
      if (!exists) throw error;
    });
    if (indexes.length === 0) continue;
    // Otherwise an index of a collection that has documents waits until all members are there.
    await db.collection(name).createIndexes([...indexes], { commitQuorum: "majority" });
  }
}

/**
 * Runs the steps that the database doesn't have yet, in their order. One replica runs them while the others wait.
 * Throws when the database has a step of a newer program that this program can't work with.
 */
export async function migrate(
  db: Db,
  o: { migrations: readonly MongoMigration[]; leases: LeaseStore; logger: Logger },
): Promise<void> {
  const { migrations, leases, logger } = o;
  const done: Collection<MigrationDocument> = db.collection("kit_migrations");
  const known = new Set(migrations.map(({ name }) => name));
  const missing = async (): Promise<MongoMigration[]> => {
    const steps = await done.find().hint({ _id: 1 }).toArray();
    const newer = steps.filter(({ _id, expands }) => !known.has(_id) && !expands);
    if (newer.length > 0) {
      const names = newer.map(({ _id }) => _id).join(", ");
      throw new Error(`The database ${db.databaseName} was written by a newer version of Sandgate (steps ${names}).`);
    }
    const ran = new Set(steps.map(({ _id }) => _id));
    return migrations.filter(({ name }) => !ran.has(name));
  };

  const holder = randomUUID();
  const { signal } = new AbortController();
  const runMissing = async () => {
    // Read again, since another replica may have run some before this one got the lease.
    for (const { name, expands, run } of await missing()) {
      const step = { database: db.databaseName, step: name };
      logger.info(step, "migrating a database");
      await run(db);
      await done.updateOne({ _id: name }, { $set: { at: new Date(), ...(expands && { expands }) } }, { upsert: true });
      logger.info(step, "migrated a database");
    }
  };
  while ((await missing()).length > 0) {
    const hasRun = await runLeased({ leases, name: leaseName, holder, ttlMs: leaseMs, signal, logger }, runMissing);
    if (!hasRun) await delay(pollMs);
  }
}

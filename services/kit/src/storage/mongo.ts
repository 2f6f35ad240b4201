import { type Collection, type Db, type Document, type Filter, MongoClient } from "mongodb";
import type { Logger } from "../base/logging.ts";
import { startPeriodicTask } from "../base/periodic-task.ts";
import { isDatabaseUnreachable } from "./database-unreachable.ts";
import type { IdempotencyStore } from "./idempotency-record.ts";
import type { LeaseStore } from "./leases.ts";
import { createAbandonedTransactionEnder } from "./mongo-abandoned.ts";
import {
  answerUsageIndexes,
  createIdempotencyStore,
  createLeaseStore,
  createOutboxStore,
  createSealedValues,
  createTransaction,
  isDuplicateKey,
  kitCollections,
  kitIndexes,
  type MongoTransaction,
  neverRefused,
  refusedIndexes,
} from "./mongo-kit.ts";
import { createCollections, type MongoMigration, migrate } from "./mongo-migrations.ts";
import type { OutboxStore } from "./outbox-store.ts";
import type { SealedValues } from "./sealed-values.ts";

export type { Db, ObjectId } from "mongodb";
export { isDuplicateKey, type MongoTransaction } from "./mongo-kit.ts";
export { createCollections, type MongoMigration } from "./mongo-migrations.ts";

export interface MongoDatabase {
  /**
   * For reads. They read from the primary what a majority has, so a read sees every write that was answered before it.
   */
  readonly db: Db;
  /**
   * Runs the function as one transaction and resolves once a majority has it on disk. The function runs again if the
   * transaction conflicted with another or the primary changed, so it must only read and write with `tx`. An error that
   * it throws, such as a DomainError, rolls the transaction back and reaches the caller. A violated unique index does
   * so after one more run, in which a function that looks first finds what was committed at the same time.
   *
   * Transactions of this process with the same `turn` run one after another. If one can't reach the database, those
   * that wait behind it fail too. Pass the id of a document that many transactions write: otherwise they would conflict
   * there and retry with ever longer delays.
   */
  write<T>(work: (tx: MongoTransaction) => Promise<T>, turn?: string): Promise<T>;
  readonly outbox: OutboxStore;
  readonly leases: LeaseStore;
  readonly idempotency: IdempotencyStore;
  readonly sealed: SealedValues;
  /** Waits for the writes in progress and closes the connections. Later writes fail. */
  close(): Promise<void>;
}

/** How often the leading relay looks for events that another replica has committed. */
const pollMs = 1_000;
/** A transaction that is retried for longer than this may wait for the locks of a killed program. */
const suspectMs = 300;
const appName = "sandgate";

const kitMigrations: readonly MongoMigration[] = [
  { name: "kit 1: outbox, inbox, answers, leases", run: (db) => createCollections(db, kitIndexes) },
  { name: "kit 2: no inbox", expands: true, run: dropInbox },
  { name: "kit 3: refused events", expands: true, run: (db) => createCollections(db, refusedIndexes) },
  { name: "kit 4: what answers take", expands: true, run: (db) => createCollections(db, answerUsageIndexes) },
];

/**
 * Connects to a MongoDB replica set and migrates the database to this program's schema. Writes have majority write
 * concern and reads majority read concern. Throws if there is no replica set, which transactions need, or if a newer
 * program has migrated the database.
 */
export async function openMongo(options: {
  /** `mongodb://…` or `mongodb+srv://…`, with any of the driver's options that are not set here. */
  url: string;
  /** The database's name. */
  name: string;
  migrations: readonly MongoMigration[];
  logger: Logger;
}): Promise<MongoDatabase> {
  const { url, name, logger } = options;
  const client = new MongoClient(url, {
    appName,
    readConcern: { level: "majority" },
    writeConcern: { w: "majority" },
    readPreference: "primary",
    retryWrites: true,
    retryReads: true,
    // After this and a heartbeat, connections to a primary that has fallen silent are given up.
    connectTimeoutMS: 5_000,
    heartbeatFrequencyMS: 5_000,
    ignoreUndefined: true,
    // Binary values are the driver's buffers. Stores copy those that they return.
    promoteBuffers: true,
  });
  const db = client.db(name);
  const kit = kitCollections(db);
  const leases = createLeaseStore(kit);
  try {
    await requireReplicaSet(client);
    await migrate(db, { migrations: [...kitMigrations, ...options.migrations], leases, logger });
  } catch (error) {
    await client.close();
    throw error;
  }

  const listeners = new Set<() => void>();
  const running = new Set<Promise<unknown>>();
  const turns = new Map<string, Promise<unknown>>();
  const endAbandonedTransactions = createAbandonedTransactionEnder(client, appName, logger);
  let closed = false;
  let leads = false;

  function notifyStaged(): void {
    for (const listener of listeners) {
      try {
        listener();
      } catch (error) {
        logger.error({ err: error }, "a listener for a database's commits failed");
      }
    }
  }

  async function runTransaction<T>(work: (tx: MongoTransaction) => Promise<T>): Promise<T> {
    let staged = false;
    const begunMs = performance.now();
    const result = await client.withSession((session) =>
      session.withTransaction(
        () => {
          staged = false;
          if (performance.now() - begunMs > suspectMs) endAbandonedTransactions();
          const onPublish = () => {
            staged = true;
          };
          return work(createTransaction(kit, session, onPublish));
        },
        { readConcern: { level: "snapshot" }, writeConcern: { w: "majority" }, readPreference: "primary" },
      ),
    );
    if (staged) notifyStaged();
    return result;
  }

  async function runWork<T>(work: (tx: MongoTransaction) => Promise<T>): Promise<T> {
    return runTransaction(work).catch((error: unknown) => {
      if (!isDuplicateKey(error)) throw error;
      return runTransaction(work);
    });
  }

  /**
   * Runs after everything that came before it in this turn, whatever its outcome. If that could not reach the database,
   * this fails too; otherwise those that wait would run long after their callers have given up.
   */
  function runInTurn<T>(turn: string, run: () => Promise<T>): Promise<T> {
    const own = (turns.get(turn) ?? Promise.resolve()).then(run, (failure: unknown) => {
      if (isDatabaseUnreachable(failure)) throw failure;
      return run();
    });
    turns.set(turn, own);
    const leave = () => {
      if (turns.get(turn) === own) turns.delete(turn);
    };
    own.then(leave, leave);
    return own;
  }

  const polling = startPeriodicTask({
    what: `look for events that other replicas committed to ${name}`,
    everyMs: pollMs,
    logger,
    async work() {
      if (leads && listeners.size > 0 && (await kit.outbox.findOne(neverRefused, { projection: { _id: 1 } }))) {
        notifyStaged();
      }
    },
  });

  return {
    db,
    async write(work, turn) {
      if (closed) throw new Error(`The database ${name} is closed`);
      const run = turn === undefined ? runWork(work) : runInTurn(turn, () => runWork(work));
      running.add(run);
      try {
        return await run;
      } finally {
        running.delete(run);
      }
    },
    outbox: createOutboxStore(kit, {
      name,
      leases,
      onStaged: (listener) => {
        // A wrapper lets the same function listen twice.
        const own = () => listener();
        listeners.add(own);
        return () => listeners.delete(own);
      },
      onLead: (now) => {
        leads = now;
      },
    }),
    leases,
    idempotency: createIdempotencyStore(kit),
    sealed: createSealedValues(db),
    async close() {
      closed = true;
      await polling.stop();
      await Promise.allSettled(running);
      await client.close();
    },
  };
}

/**
 * Matches the documents that come after a position in a list sorted by two fields or more, all descending.
 *
 * @param last the fields at that position, in the order of the sort; the first is a range of the index
 */
export function afterPosition<D extends Document>(last: Partial<D> | undefined): Filter<D> {
  if (!last) return {};
  const fields = Object.entries(last);
  const [[first, at] = []] = fields;
  if (first === undefined || fields.length < 2) throw new Error("a position in a list needs two fields");
  const before = fields.slice(1).map(([name, value], index) => ({
    ...Object.fromEntries(fields.slice(0, index + 1)),
    [name]: { [index === fields.length - 2 ? "$gte" : "$gt"]: value },
  }));
  // With `$or` the server would choose an index for each branch and then have to sort.
  // The checker can't know that these fields are still the document's.
  return { [first]: { $lte: at }, $nor: before } as Filter<Document> as Filter<D>;
}

/**
 * Deletes up to `limit` matching documents and returns how many it found. It finds fewer only if there are no more,
 * even when another replica deletes some of them first.
 */
export async function deleteBatch<D extends Document>(
  collection: Collection<D>,
  filter: Filter<D>,
  limit: number,
): Promise<number> {
  const found = await collection
    .find(filter, { projection: { _id: 1 } })
    .limit(limit)
    .toArray();
  if (found.length === 0) return 0;
  const ids = found.map(({ _id }) => _id);
  // The filter is checked again, since a document may have changed meanwhile.
  await collection.deleteMany({ $and: [{ _id: { $in: ids } }, filter] } as Filter<Document> as Filter<D>);
  return found.length;
}

async function dropInbox(db: Db): Promise<void> {
  // A server of version 6 refuses to drop a missing collection.
  const found = await db.listCollections({ name: "kit_inbox" }).toArray();
  if (found.length > 0) await db.dropCollection("kit_inbox");
}

async function requireReplicaSet(client: MongoClient): Promise<void> {
  const hello = await client.db("admin").command({ hello: 1 });
  if (hello.setName) return;
  const hosts = client.options.hosts.map(String).join(", ");
  throw new Error(
    `MongoDB at ${hosts} is not a replica set, which transactions need: start mongod with --replSet and run rs.initiate().`,
  );
}

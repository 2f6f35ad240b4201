import { closeSync, mkdirSync, openSync } from "node:fs";
import { basename, dirname } from "node:path";
import { DatabaseSync } from "node:sqlite";
import type { Logger } from "../base/logging.ts";
import { startPeriodicTask } from "../base/periodic-task.ts";
import type { IdempotencyRecord, IdempotencyStore } from "./idempotency-record.ts";
import type { LeaseStore } from "./leases.ts";
import {
  maxCountedEvents,
  type OutboxStore,
  refusedRetry,
  type StagedEvent,
  type WaitingEvent,
} from "./outbox-store.ts";
import type { Queries } from "./queries.ts";
import type { SealedValues } from "./sealed-values.ts";
import { createConnection, type SqliteConnection } from "./sqlite-connection.ts";
import type { kitTransactions } from "./sqlite-kit.ts";
import { createMemory } from "./sqlite-memory.ts";
import type { Call, SqliteMigration, WriteCall } from "./sqlite-messages.ts";
import { listOthers } from "./sqlite-sealed.ts";
import { type SqliteThread, startReader, startWriter } from "./sqlite-thread.ts";
import type { Transactions } from "./transaction.ts";

export type { Queries, QueryConnection } from "./queries.ts";
export type { SqliteMigration } from "./sqlite-messages.ts";
export type { Transaction, TransactionOf, Transactions } from "./transaction.ts";

type Tail<P extends readonly unknown[]> = P extends readonly [unknown, ...infer Rest] ? Rest : [];
type Functions = Record<string, (connection: never, ...args: never[]) => unknown>;
/** The functions of a module as the calling thread sees them, without the connection that each is given first. */
type Calls<F extends Functions> = {
  readonly [K in keyof F]: (...args: Tail<Parameters<F[K]>>) => Promise<ReturnType<F[K]>>;
};

export interface SqliteDatabase<T extends Transactions, Q extends Queries = Record<never, never>> {
  /**
   * A read-only connection in this thread, for reads that an index answers at once, since the process does nothing else
   * meanwhile. A read sees every write that was answered before it.
   */
  readonly read: SqliteConnection;
  /**
   * Returns the same function, which reads something by a key, with a memory: its results are remembered until the next
   * write to this database begins, unless that is of events alone. For what is read again and again. The results are
   * shared, so they must not be changed.
   */
  readonly remember: <V extends NonNullable<unknown>>(
    find: (key: string) => V | undefined,
  ) => (key: string) => V | undefined;
  /** Runs a query in the reader thread, for lists. It sees every write that was answered before the call. */
  readonly query: Calls<Q>;
  /** Runs a transaction in the writer thread. Resolves once it is on disk. */
  readonly write: Calls<T>;
  /** Runs a transaction that is `Transaction.publishOnce` alone. */
  publishOnce(events: readonly StagedEvent[]): Promise<void>;
  readonly outbox: OutboxStore;
  readonly leases: LeaseStore;
  readonly idempotency: IdempotencyStore;
  readonly sealed: SealedValues;
  /** Waits for the writes and queries that are queued and closes the file. Later ones fail. */
  close(): Promise<void>;
}

/** How long a statement waits for the lock of another process, such as a backup tool's. */
const busyTimeoutMs = 5000;
/** The time between two sweeps of expired rows of the kit, and how many rows a sweep removes at once. */
const sweepEveryMs = 10 * 60 * 1000;
const sweepBatchSize = 200;

/**
 * Opens or creates a SQLite database with WAL, synchronous FULL and foreign keys. One thread writes to all databases of
 * a process except those with `ownWriter`. Writes that wait for the same database are committed together, each under
 * its own savepoint. With `queries`, a reader thread starts at the first query and runs them one after another. A
 * thread that ends by itself ends the process.
 *
 * `migrations` run in order, each once, after the file was copied. A database of a newer program is refused.
 * `transactions` is the module that exports `const transactions`, whose type is T, and `queries` the module that
 * exports `const queries`, whose type is Q.
 */
export async function openSqlite<T extends Transactions, Q extends Queries = Record<never, never>>(options: {
  file: string;
  migrations: readonly SqliteMigration[];
  transactions: URL;
  queries?: URL;
  /** Whether the database has a writer thread of its own, because its writes take many milliseconds. */
  ownWriter?: boolean;
  logger: Logger;
}): Promise<SqliteDatabase<T, Q>> {
  const { file, logger } = options;
  mkdirSync(dirname(file), { recursive: true, mode: 0o700 });
  closeSync(openSync(file, "a", 0o600));
  const writer = await startWriter(
    {
      file,
      migrations: options.migrations,
      transactions: options.transactions.href,
    },
    { ownThread: options.ownWriter ?? false, logger },
  );
  const connection = new DatabaseSync(file, { readOnly: true, timeout: busyTimeoutMs });
  const read = createConnection(connection);
  const remembered = createMemory();
  const write = (call: WriteCall) => remembered.during(() => writer.call(call));
  const kit = callsOf<typeof kitTransactions>((call) => write({ owner: "kit", ...call }));
  // Of events nothing is remembered, and each use of a sandbox makes some.
  const events = callsOf<Pick<typeof kitTransactions, "publishOnce" | "postpone" | "markSent" | "resend">>((call) =>
    writer.call({ owner: "kit", ...call }),
  );
  let reader: Promise<SqliteThread<Call>> | undefined;
  /** A thread takes about 12 MB and a fraction of a second to start, so it starts with the first query. */
  const openReader = (queries: URL) => {
    reader ??= startReader({ file, queries: queries.href }, logger).catch((error: unknown) => {
      reader = undefined;
      throw error;
    });
    return reader;
  };
  let isClosed = false;

  const sweeping = startPeriodicTask({
    what: `sweep ${file}`,
    everyMs: sweepEveryMs,
    logger,
    work: async (signal) => {
      for (const sweep of [kit.sweepOutbox, kit.sweepAnswers, kit.sweepAnswerUsages, kit.shrink]) {
        while (!signal.aborted && (await sweep(sweepBatchSize)) === sweepBatchSize);
      }
    },
  });
  return {
    read,
    query: callsOf<Q>(async (call) => {
      if (isClosed) throw new Error(`The database ${file} is closed`);
      if (!options.queries) throw new Error(`${file} was opened without queries`);
      return (await openReader(options.queries)).call(call);
    }),
    remember: remembered.remember,
    write: callsOf<T>((call) => write({ owner: "service", ...call })),
    publishOnce: (staged) => events.publishOnce(staged),
    outbox: {
      name: basename(file).replace(/\.\w+$/, ""),
      async unsent(limit) {
        const columns = "SELECT id, subject, bytes, refusals FROM kit_outbox WHERE sent_at IS NULL";
        const waiting = read.all<WaitingEvent>(`${columns} AND retry_at IS NULL ORDER BY staged_at LIMIT ?`, limit);
        const free = limit - waiting.length;
        const readDue = (condition: string, at: number) =>
          read.all<WaitingEvent>(`${columns} AND ${condition} ORDER BY retry_at LIMIT ?`, at, free);
        const now = Date.now();
        // What is due later than after the longest delay was refused before the clock was set back.
        const due = [...readDue("retry_at <= ?", now), ...readDue("retry_at > ?", now + refusedRetry.lastMs)];
        return [...waiting, ...due].slice(0, limit);
      },
      postpone: (refused) => events.postpone(refused),
      markSent: (ids, bus) => events.markSent(ids, bus),
      resend: (bus, limit) => events.resend(bus, limit),
      backlog: async () => {
        const waiting = "FROM kit_outbox INDEXED BY kit_outbox_refused WHERE sent_at IS NULL AND";
        const count = (which: string) =>
          read.get<{ events: number }>(
            `SELECT count(*) AS events FROM (SELECT 1 ${waiting} ${which} LIMIT ?)`,
            maxCountedEvents,
          )?.events ?? 0;
        const oldest = read.get<{ at: number | null }>(
          "SELECT min(staged_at) AS at FROM kit_outbox INDEXED BY kit_outbox_unsent WHERE sent_at IS NULL",
        )?.at;
        const refused = count("retry_at > 0");
        return {
          unsent: Math.min(maxCountedEvents, refused + count("retry_at IS NULL")),
          refused,
          oldestStagedAt: oldest ? new Date(oldest) : undefined,
        };
      },
      lead: async (holder, ttlMs) => (await kit.acquireLeases(["kit.relay"], holder, ttlMs)).length > 0,
      resign: (holder) => kit.releaseLeases(["kit.relay"], holder),
      onStaged: (listener) => {
        // A wrapper lets the same function listen twice.
        const own = () => listener();
        writer.stagedListeners.add(own);
        return () => writer.stagedListeners.delete(own);
      },
    },
    leases: {
      acquire: (names, holder, ttlMs) => kit.acquireLeases(names, holder, ttlMs),
      async listFree(names) {
        const held = read.all<{ name: string }>("SELECT name FROM kit_leases WHERE expires_at > ?", Date.now());
        const taken = new Set(held.map(({ name }) => name));
        return names.filter((name) => !taken.has(name));
      },
      release: (names, holder) => kit.releaseLeases(names, holder),
    },
    idempotency: {
      find: async (id) =>
        read.get<Pick<IdempotencyRecord, "id" | "sealed">>(
          "SELECT id, sealed FROM kit_answers WHERE id = ? AND expires_at > ?",
          id,
          Date.now(),
        ),
    },
    sealed: {
      listOthers: async (column, keyId, limit, after) => listOthers(read, column, keyId, limit, after),
      replace: (column, changes) => kit.replaceSealed(column, changes),
    },
    close: async () => {
      isClosed = true;
      await sweeping.stop();
      await Promise.all([writer.close(), reader?.then((thread) => thread.close())]);
      if (connection.isOpen) connection.close();
    },
  };
}

/** Returns a function for every name. The thread knows which names exist. */
function callsOf<F extends Functions>(run: (call: Call) => Promise<unknown>): Calls<F> {
  const calls = new Map<string, (...args: unknown[]) => Promise<unknown>>();
  const get = (_: object, name: string | symbol) => {
    // Symbols, and the `then` that `await` looks for, are no functions of the module.
    if (typeof name === "symbol" || name === "then") return undefined;
    const call = calls.get(name) ?? ((...args: unknown[]) => run({ name, args }));
    calls.set(name, call);
    return call;
  };
  // The caller has named the module and given its types.
  return new Proxy({}, { get }) as Calls<F>;
}

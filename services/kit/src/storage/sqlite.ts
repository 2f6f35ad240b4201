import { closeSync, mkdirSync, openSync } from "node:fs";
import { basename, dirname } from "node:path";
import { DatabaseSync } from "node:sqlite";
import { Worker } from "node:worker_threads";
import { DomainError } from "../base/domain-error.ts";
import type { Logger } from "../base/logging.ts";
import { startPeriodicTask } from "../base/periodic-task.ts";
import { type IdempotencyRecord, IdempotencyRecordExists, type IdempotencyStore } from "./idempotency-record.ts";
import type { LeaseStore } from "./leases.ts";
import type { OutboxStore, WaitingEvent } from "./outbox-store.ts";
import { createConnection, type SqliteConnection } from "./sqlite-connection.ts";
import type { kitTransactions } from "./sqlite-kit.ts";
import type { Failure, WriteAnswer, WriterAnswer, WriterData, WriterRequest } from "./sqlite-messages.ts";
import type { Transactions } from "./transaction.ts";

export type { Transaction, Transactions } from "./transaction.ts";

type Tail<P extends readonly unknown[]> = P extends readonly [unknown, ...infer Rest] ? Rest : [];
/** The transactions of a module as the calling thread sees them. */
type Writes<T extends Transactions> = {
  readonly [K in keyof T]: (...args: Tail<Parameters<T[K]>>) => Promise<ReturnType<T[K]>>;
};

export interface SqliteDatabase<T extends Transactions> {
  /** A read-only connection in this thread. A read sees every write that was answered before it. */
  readonly read: SqliteConnection;
  /** Runs a transaction in the writer thread; resolves once it is on disk. */
  readonly write: Writes<T>;
  readonly outbox: OutboxStore;
  readonly leases: LeaseStore;
  readonly idempotency: IdempotencyStore;
  /** Waits for the writes that are queued and closes the file. Later writes fail. */
  close(): Promise<void>;
}

/** How long a statement waits for the lock of another process, such as a backup tool. */
const busyTimeoutMs = 5000;
/** Between two sweeps of what the kit keeps for a time, and rows that a sweep removes at once. */
const sweepEveryMs = 10 * 60 * 1000;
const sweepBatchSize = 200;

/**
 * Opens or creates a SQLite database with one writer thread: WAL, synchronous FULL, foreign keys. Writes that wait together
 * are committed together, each under a savepoint of its own. A thread that ends by itself ends the process.
 *
 * `migrations` are run in their order, each once, after the file was copied beside itself; a database of a newer program is
 * refused. `transactions` is the module that exports `const transactions`, whose types are given as T.
 */
export async function openSqlite<T extends Transactions>(options: {
  file: string;
  migrations: readonly string[];
  transactions: URL;
  logger: Logger;
}): Promise<SqliteDatabase<T>> {
  const { file, logger } = options;
  mkdirSync(dirname(file), { recursive: true, mode: 0o700 });
  closeSync(openSync(file, "a", 0o600));
  const writer = await startWriter(
    {
      file,
      migrations: options.migrations,
      transactions: options.transactions.href,
    },
    logger,
  );
  const connection = new DatabaseSync(file, { readOnly: true, timeout: busyTimeoutMs });
  const read = createConnection(connection);
  const kit = callsOf<typeof kitTransactions>(writer, "kit");

  const sweeping = startPeriodicTask({
    what: `sweep ${file}`,
    everyMs: sweepEveryMs,
    logger,
    work: async (signal) => {
      for (const sweep of [kit.sweepOutbox, kit.sweepAnswers]) {
        while (!signal.aborted && (await sweep(sweepBatchSize)) === sweepBatchSize);
      }
    },
  });
  return {
    read,
    write: callsOf<T>(writer, "service"),
    outbox: {
      name: basename(file).replace(/\.\w+$/, ""),
      async unsent(limit) {
        const columns = "SELECT id, subject, bytes, refusals FROM kit_outbox WHERE sent_at IS NULL";
        const waiting = read.all<WaitingEvent>(`${columns} AND retry_at IS NULL ORDER BY staged_at LIMIT ?`, limit);
        const due = read.all<WaitingEvent>(
          `${columns} AND retry_at <= ? ORDER BY retry_at LIMIT ?`,
          Date.now(),
          limit - waiting.length,
        );
        return [...waiting, ...due];
      },
      postpone: (refused) => kit.postpone(refused),
      markSent: (ids, bus) => kit.markSent(ids, bus),
      resend: (bus, limit) => kit.resend(bus, limit),
      backlog: async () => {
        const row = read.get<{ unsent: number; refused: number; oldest: number | null }>(
          `SELECT count(*) AS unsent, count(retry_at) AS refused, min(staged_at) AS oldest FROM kit_outbox
           WHERE sent_at IS NULL`,
        );
        return {
          unsent: row?.unsent ?? 0,
          refused: row?.refused ?? 0,
          oldestStagedAt: row?.oldest ? new Date(row.oldest) : undefined,
        };
      },
      lead: async (holder, ttlMs) => (await kit.acquireLeases(["kit.relay"], holder, ttlMs)).length > 0,
      resign: (holder) => kit.releaseLeases(["kit.relay"], holder),
      onStaged: (listener) => {
        // Wrapped, so that the same function may listen twice.
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
        read.get<IdempotencyRecord>(
          "SELECT id, sealed FROM kit_answers WHERE id = ? AND expires_at > ?",
          id,
          Date.now(),
        ),
    },
    close: async () => {
      await sweeping.stop();
      await writer.close();
      if (connection.isOpen) connection.close();
    },
  };
}

interface Writer {
  call(owner: "kit" | "service", name: string, args: readonly unknown[]): Promise<unknown>;
  readonly stagedListeners: Set<() => void>;
  close(): Promise<void>;
}

async function startWriter(data: WriterData, logger: Logger): Promise<Writer> {
  // The thread only runs short functions, so its young generation needs no more than this.
  const worker = new Worker(new URL("./sqlite-writer.ts", import.meta.url), {
    workerData: data,
    resourceLimits: { maxYoungGenerationSizeMb: 4 },
  });
  const pending = new Map<number, { resolve(result: unknown): void; reject(error: Error): void }>();
  const stagedListeners = new Set<() => void>();
  const { promise: ready, resolve: setReady, reject: refuse } = Promise.withResolvers<void>();
  const { promise: ended, resolve: setEnded } = Promise.withResolvers<void>();
  let lastId = 0;
  let over: Error | undefined;

  const settle = ({ id, result, failure }: WriteAnswer) => {
    const call = pending.get(id);
    pending.delete(id);
    if (failure) call?.reject(toError(failure));
    else call?.resolve(result);
  };
  const notifyStaged = () => {
    for (const listener of stagedListeners) {
      try {
        listener();
      } catch (error) {
        logger.error({ err: error }, "a listener for a database's commits failed");
      }
    }
  };
  const stop = (error: Error) => {
    over ??= error;
    refuse(over);
    for (const call of pending.values()) call.reject(over);
    pending.clear();
  };
  worker.on("message", (message: WriterAnswer) => {
    if ("ready" in message) return setReady();
    if ("refused" in message) return stop(toError(message.refused));
    for (const answer of message.answers) settle(answer);
    if (message.staged) notifyStaged();
  });
  /** Nothing can be stored without the thread, so the process ends and its supervisor starts it again. */
  const endProcess = (error?: Error) => {
    logger.fatal({ err: error, file: data.file }, "the writer thread of a database ended, and so does this process");
    process.exit(1);
  };
  let isServing = false;
  worker.on("error", (error) => {
    if (isServing) endProcess(error);
    stop(new Error(`The writer thread of ${data.file} failed`, { cause: error }));
  });
  worker.on("exit", () => {
    if (isServing && !over) endProcess();
    stop(new Error(`The database ${data.file} is closed`));
    setEnded();
  });
  await ready;
  isServing = true;

  const post = (request: WriterRequest) => worker.postMessage(request);
  return {
    stagedListeners,
    call: (owner, name, args) =>
      new Promise((resolve, reject) => {
        if (over) return reject(over);
        const id = ++lastId;
        post({ write: { id, owner, name, args } });
        pending.set(id, { resolve, reject });
      }),
    close: async () => {
      if (!over) {
        over = new Error(`The database ${data.file} is closed`);
        post({ close: true });
      }
      await ended;
    },
  };
}

/** One function per name that is asked for; the thread knows which names there are. */
function callsOf<T extends Transactions>(writer: Writer, owner: "kit" | "service"): Writes<T> {
  const calls = new Map<string, (...args: unknown[]) => Promise<unknown>>();
  const get = (_: object, name: string | symbol) => {
    // Neither a symbol nor the `then` that `await` looks for is a transaction.
    if (typeof name === "symbol" || name === "then") return undefined;
    const call = calls.get(name) ?? ((...args: unknown[]) => writer.call(owner, name, args));
    calls.set(name, call);
    return call;
  };
  // The caller has given the types of the module that it named.
  return new Proxy({}, { get }) as Writes<T>;
}

function toError(failure: Failure): Error {
  if (failure.kind === "idempotency-record-exists") return new IdempotencyRecordExists(failure.message);
  if (failure.kind === "domain") {
    const { reason, message, hint, violations, retryAfterSeconds } = failure;
    return new DomainError(reason, message, {
      ...(hint !== undefined && { hint }),
      ...(violations && { violations }),
      ...(retryAfterSeconds !== undefined && { retryAfterSeconds }),
    });
  }
  const error = new Error(failure.message);
  if (failure.stack) error.stack = failure.stack;
  return failure.errcode === undefined ? error : Object.assign(error, { errcode: failure.errcode });
}

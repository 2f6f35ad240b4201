import { MessageChannel, Worker } from "node:worker_threads";
import type { Logger } from "../base/logging.ts";
import {
  type Call,
  type CallAnswer,
  type ReaderData,
  type ThreadAnswer,
  type ThreadRequest,
  toError,
  type WriteCall,
  type WriterData,
} from "./sqlite-messages.ts";

export interface SqliteThread<C extends Call> {
  call(call: C): Promise<unknown>;
  /** Listeners that are called after each commit that staged events. */
  readonly stagedListeners: Set<() => void>;
  /** Waits for the calls in progress. Later ones fail. */
  close(): Promise<void>;
}

/** A worker thread and the number of databases it serves. */
interface Host {
  worker: Worker;
  databases: number;
}

/**
 * The thread that writes to all databases of this process except those with a thread of their own. Without a database
 * it waits for the next one, and doesn't keep the process alive.
 */
let sharedWriter: Host | undefined;

/**
 * Creates or migrates a database and serves its writes: in the thread that all databases share, which takes about 15
 * MB, or in a thread of its own if its writes take so long that they would hold up others.
 */
export function startWriter(
  data: WriterData,
  { ownThread, logger }: { ownThread: boolean; logger: Logger },
): Promise<SqliteThread<WriteCall>> {
  if (ownThread) return startThread("writer", openHost("writer"), data, logger);
  if (!sharedWriter) {
    sharedWriter = openHost("writer");
    sharedWriter.worker.once("exit", () => (sharedWriter = undefined));
  }
  sharedWriter.worker.ref();
  return startThread("writer", sharedWriter, data, logger);
}

/** Starts a thread that reads from an existing database. */
export function startReader(data: ReaderData, logger: Logger): Promise<SqliteThread<Call>> {
  return startThread("reader", openHost("reader"), data, logger);
}

function openHost(role: "writer" | "reader"): Host {
  // The thread runs only short functions, so its young generation can be small.
  const worker = new Worker(new URL(`./sqlite-${role}.ts`, import.meta.url), {
    resourceLimits: { maxYoungGenerationSizeMb: 4 },
  });
  // Each database adds a listener.
  worker.setMaxListeners(0);
  return { worker, databases: 0 };
}

async function leaveHost(host: Host): Promise<void> {
  host.databases--;
  if (host.databases > 0) return;
  if (host === sharedWriter) host.worker.unref();
  else await host.worker.terminate();
}

/** Work of all databases that waits for its own turn of the event loop. */
const waiting: (() => void)[] = [];

/**
 * Runs the work in its own turn of the event loop, in order, because handling a page of rows may take some
 * milliseconds.
 */
function runInTurn(work: () => void): void {
  waiting.push(work);
  if (waiting.length === 1) setImmediate(runNext);
}

function runNext(): void {
  waiting[0]?.();
  waiting.shift();
  if (waiting.length > 0) setImmediate(runNext);
}

async function startThread<C extends Call>(
  role: "writer" | "reader",
  host: Host,
  data: { file: string },
  logger: Logger,
): Promise<SqliteThread<C>> {
  const { worker } = host;
  host.databases++;
  const { port1: port, port2: threadPort } = new MessageChannel();
  worker.postMessage({ port: threadPort, data }, [threadPort]);
  const pending = new Map<number, { resolve(result: unknown): void; reject(error: Error): void }>();
  const stagedListeners = new Set<() => void>();
  const { promise: ready, resolve: setReady, reject: refuse } = Promise.withResolvers<void>();
  const { promise: ended, resolve: setEnded } = Promise.withResolvers<void>();
  let lastId = 0;
  let over: Error | undefined;

  const settle = ({ id, result, failure }: CallAnswer) => {
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
  port.on("message", (message: ThreadAnswer) => {
    if ("ready" in message) return setReady();
    if ("migrating" in message) {
      const what = "copying a database and migrating it, which takes a minute or more for each million rows";
      return logger.warn({ file: data.file }, `${what}; if it is interrupted, the next start begins again`);
    }
    if ("refused" in message) return stop(toError(message.refused));
    for (const answer of message.answers) {
      if (role === "reader") runInTurn(() => settle(answer));
      else settle(answer);
    }
    if (message.staged) notifyStaged();
  });
  /** Without its thread nothing can be stored or listed, so the process ends, and its supervisor starts it again. */
  const endProcess = (error?: Error) => {
    logger.fatal({ err: error, file: data.file }, `the ${role} thread of a database ended, and so does this process`);
    process.exit(1);
  };
  let isServing = false;
  const fail = (error: Error) => {
    if (isServing) endProcess(error);
    stop(new Error(`The ${role} thread of ${data.file} failed`, { cause: error }));
  };
  const exit = () => {
    if (isServing && !over) endProcess();
    stop(new Error(`The ${role} thread of ${data.file} ended`));
    setEnded();
  };
  worker.on("error", fail);
  worker.on("exit", exit);
  port.on("close", () => {
    // The events of a thread that ended by itself say why.
    if (!over) return;
    worker.off("error", fail);
    worker.off("exit", exit);
    // Runs after the answers that wait for their turn.
    runInTurn(() => {
      stop(new Error(`The database ${data.file} is closed`));
      leaveHost(host).then(setEnded, endProcess);
    });
  });
  await ready;
  isServing = true;

  const post = (request: ThreadRequest<C>) => port.postMessage(request);
  return {
    stagedListeners,
    call: (call) =>
      new Promise((resolve, reject) => {
        if (over) return reject(over);
        const id = ++lastId;
        post({ id, call });
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

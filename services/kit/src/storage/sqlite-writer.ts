/** The thread that writes to SQLite databases, each over a port of its own; sqlite-thread.ts starts it. */
import { closeSync, existsSync, fsyncSync, openSync, readdirSync, renameSync, rmSync } from "node:fs";
import { basename, dirname, join } from "node:path";
import { DatabaseSync } from "node:sqlite";
import { type MessagePort, parentPort, receiveMessageOnPort } from "node:worker_threads";
import { messageOf } from "../base/domain-error.ts";
import { createConnection } from "./sqlite-connection.ts";
import { createTransaction, kitMigrations, kitTransactions } from "./sqlite-kit.ts";
import {
  type Answer,
  type CallAnswer,
  type DatabasePort,
  type SqliteMigration,
  serveOver,
  type ThreadRequest,
  toFailure,
  type WriteCall,
  type WriterData,
} from "./sqlite-messages.ts";
import { hashTexts } from "./text-hash.ts";
import type { Transactions } from "./transaction.ts";

/** How many writes are committed together at most, so that the first of a group doesn't wait long. */
const groupSize = 128;

interface Write {
  id: number;
  call: WriteCall;
}

if (!parentPort) throw new Error("sqlite-writer.ts runs in a thread");
parentPort.on("message", ({ port, data }: DatabasePort<WriterData>) =>
  serveOver(port, (answer) => serve(port, data, answer)),
);

async function serve(port: MessagePort, data: WriterData, answer: Answer): Promise<void> {
  // What a process has left that was killed while it migrated. It comes first, since it may fill the disk.
  removePartialCopies(data.file);
  const db = new DatabaseSync(data.file, { timeout: 5000, enableForeignKeyConstraints: true });
  // Only a file that is still empty takes up auto_vacuum, so it comes first.
  db.exec("PRAGMA auto_vacuum = INCREMENTAL; PRAGMA journal_mode = WAL; PRAGMA synchronous = FULL;");
  db.exec("PRAGMA journal_size_limit = 67108864;");
  db.function("hash_texts", { deterministic: true, varargs: true }, hashTexts);
  try {
    migrate(db, data, () => answer({ migrating: true }));
  } catch (error) {
    // Rolls back and releases the file.
    db.close();
    removePartialCopies(data.file);
    throw error;
  }
  // Only this process opens the file, so all holders of leases are gone.
  db.exec("UPDATE kit_leases SET expires_at = 0 WHERE expires_at <> 0");
  const owners = {
    kit: kitTransactions as Transactions,
    service: data.transactions === undefined ? {} : await importTransactions(data.transactions),
  };
  const connection = createConnection(db);
  let staged = false;
  const tx = createTransaction(connection, () => {
    staged = true;
  });

  const run = ({ owner, name, args }: WriteCall): unknown => {
    const transaction = Object.hasOwn(owners[owner], name) ? owners[owner][name] : undefined;
    if (!transaction) throw new Error(`There is no transaction ${name} in ${data.transactions ?? "the kit"}`);
    const result = transaction(tx, ...(args as never[]));
    if (result instanceof Promise) throw new Error(`The transaction ${name} is async: it must not wait`);
    return result;
  };
  const runUnderSavepoint = ({ id, call }: Write): CallAnswer => {
    db.exec("SAVEPOINT write");
    try {
      const result = run(call);
      db.exec("RELEASE write");
      return { id, result };
    } catch (error) {
      // Some failures, such as a full disk, end the whole transaction, and the group fails.
      if (!db.isTransaction) throw error;
      db.exec("ROLLBACK TO write; RELEASE write");
      return { id, failure: toFailure(error) };
    }
  };
  const commitGroup = (group: readonly Write[]): CallAnswer[] => {
    staged = false;
    try {
      db.exec("BEGIN IMMEDIATE");
      const answers = group.map(runUnderSavepoint);
      db.exec("COMMIT");
      return answers;
    } catch (error) {
      if (db.isTransaction) db.exec("ROLLBACK");
      const failure = toFailure(error);
      staged = false;
      return group.map(({ id }) => ({ id, failure }));
    }
  };

  port.on("message", (first: ThreadRequest<WriteCall>) => {
    // Everything that arrived while the last group was committed forms the next group.
    const group: Write[] = [];
    let next: ThreadRequest<WriteCall> | undefined = first;
    let closing = false;
    while (next) {
      if ("close" in next) closing = true;
      else group.push(next);
      next = group.length < groupSize ? receiveMessageOnPort(port)?.message : undefined;
    }
    if (group.length > 0) send(answer, commitGroup(group), staged);
    if (closing) {
      db.close();
      port.close();
    }
  });
  answer({ ready: true });
}

function send(answer: Answer, answers: CallAnswer[], staged: boolean): void {
  try {
    answer({ answers, staged });
  } catch {
    // One result can't be cloned. Sent one by one, the others still arrive.
    for (const one of answers) {
      try {
        answer({ answers: [one], staged });
      } catch (error) {
        answer({ answers: [{ id: one.id, failure: toFailure(error) }], staged });
      }
    }
  }
}

async function importTransactions(address: string): Promise<Transactions> {
  const module: { transactions?: Transactions } = await import(address);
  if (!module.transactions) throw new Error(`${address} exports no transactions`);
  return module.transactions;
}

function migrate(db: DatabaseSync, data: WriterData, onBegin: () => void): void {
  const scopes: Record<string, readonly SqliteMigration[]> = { kit: kitMigrations, service: data.migrations };
  const isNew = db.prepare("SELECT 1 FROM sqlite_schema").get() === undefined;
  if (isNew) {
    db.exec(
      `CREATE TABLE kit_migrations (
         scope TEXT NOT NULL, version INTEGER NOT NULL, applied_at INTEGER NOT NULL, PRIMARY KEY (scope, version)
       ) STRICT, WITHOUT ROWID`,
    );
  }
  const versionOf = (scope: string) =>
    Number(
      db.prepare("SELECT coalesce(max(version), 0) AS version FROM kit_migrations WHERE scope = ?").get(scope)?.version,
    );
  const missing = Object.entries(scopes).flatMap(([scope, migrations]) => {
    const version = versionOf(scope);
    if (version > migrations.length) {
      const known = `${kitMigrations.length}.${data.migrations.length}`;
      throw new Error(
        `${data.file} was written by a newer version of Sandgate (${scope} schema ${version}, this version knows ${migrations.length}): ` +
          "start that version, or restore a backup from before it. The copy made before its migration has nothing of what came later: " +
          `to go back to it, delete ${data.file}-wal and ${data.file}-shm, then rename the newest ${data.file}.v${known}*.bak to ${data.file}`,
      );
    }
    return migrations.slice(version).map((step, index) => ({ scope, step, version: version + index + 1 }));
  });
  if (missing.length === 0) return;
  // A migration that was interrupted after its first commit has its copy.
  const isResumed = db.prepare("PRAGMA user_version").get()?.user_version !== 0;
  if (!isNew) onBegin();
  let copy = isNew || isResumed ? undefined : copyBeside(db, data.file, `${versionOf("kit")}.${versionOf("service")}`);
  const commit = (state: "unfinished" | "done") => {
    // Until the first commit nobody needs the copy.
    if (copy) nameCopy(copy);
    db.exec(`PRAGMA user_version = ${state === "done" ? 0 : 1}; COMMIT`);
    copy = undefined;
  };
  /** Runs the statement in transactions of its own until it changes nothing. */
  const runBatches = (sql: string) => {
    const batch = db.prepare(sql);
    do {
      commit("unfinished");
      db.exec("BEGIN IMMEDIATE");
    } while (batch.run().changes !== 0);
  };
  try {
    db.exec("BEGIN IMMEDIATE");
    for (const { scope, step, version } of missing) {
      if (typeof step === "string") db.exec(step);
      else runBatches(step.batches);
      db.prepare("INSERT INTO kit_migrations (scope, version, applied_at) VALUES (?, ?, ?)").run(
        scope,
        version,
        Date.now(),
      );
    }
    commit("done");
  } catch (cause) {
    if (copy) rmSync(copy, { force: true });
    throw new Error(`${data.file} can't be migrated: ${messageOf(cause)}`, { cause });
  }
}

const partialSuffix = ".partial";

/**
 * Copies the database, and returns the name for the copy: `<file>.v<version>.bak`, with a number after the version if
 * such a copy exists.
 */
function copyBeside(db: DatabaseSync, file: string, version: string): string {
  let copy = `${file}.v${version}.bak`;
  for (let number = 2; existsSync(copy); number++) copy = `${file}.v${version}.${number}.bak`;
  const partial = `${copy}${partialSuffix}`;
  try {
    closeSync(openSync(partial, "wx", 0o600));
    db.prepare("VACUUM INTO ?").run(partial);
    syncToDisk(partial);
  } catch (cause) {
    const size = db.prepare("SELECT page_count * page_size AS bytes FROM pragma_page_count, pragma_page_size").get();
    const needed = `the copy needs about ${Math.ceil(Number(size?.bytes) / 1e6)} MB on the same disk`;
    throw new Error(`${file} can't be copied before its migration: ${messageOf(cause)}; ${needed}`, { cause });
  }
  return copy;
}

/** The name says that the copy is whole, on disk, and of use. */
function nameCopy(copy: string): void {
  renameSync(`${copy}${partialSuffix}`, copy);
  syncToDisk(dirname(copy));
}

/** Removes copies without their names, with the journals that SQLite keeps beside them. */
function removePartialCopies(file: string): void {
  const folder = dirname(file);
  for (const name of readdirSync(folder)) {
    const isPartial = name.startsWith(`${basename(file)}.v`) && name.includes(`.bak${partialSuffix}`);
    if (isPartial) rmSync(join(folder, name));
  }
}

function syncToDisk(path: string): void {
  const opened = openSync(path, "r");
  try {
    fsyncSync(opened);
  } finally {
    closeSync(opened);
  }
}

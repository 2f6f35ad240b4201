import { execFile, spawn } from "node:child_process";
import { once } from "node:events";
import { existsSync, readdirSync, statSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import { DatabaseSync } from "node:sqlite";
import { setTimeout as delay } from "node:timers/promises";
import { fileURLToPath } from "node:url";
import { promisify } from "node:util";
import { test } from "@sandgate/test-support/test";
import { type Logger, pino } from "pino";
import { afterEach, expect } from "vitest";
import { DomainError } from "../base/domain-error.ts";
import { migrations, type queries, type transactions } from "./sqlite.fixture.ts";
import { openSqlite, type SqliteDatabase, type SqliteMigration } from "./sqlite.ts";

type Database = SqliteDatabase<typeof transactions, typeof queries>;

const logger = pino({ enabled: false });
const fixture = new URL("./sqlite.fixture.ts", import.meta.url);
let folder: string;
let file: string;
let opened: { close(): Promise<void> }[];

test.beforeEach(async ({ folder: own }) => {
  folder = own;
  file = join(folder, "data", "notes.sqlite");
  opened = [];
});

afterEach(async () => {
  await Promise.all(opened.map((database) => database.close()));
});

async function open(
  steps: readonly SqliteMigration[] = migrations,
  own: { file?: string; ownWriter?: boolean; logger?: Logger } = {},
): Promise<Database> {
  const database = await openSqlite<typeof transactions, typeof queries>({
    file,
    migrations: steps,
    transactions: fixture,
    queries: fixture,
    logger,
    ...own,
  });
  opened.push(database);
  return database;
}

function notesOf(database: Database): string[] {
  return database.read.all<{ id: string }>("SELECT id FROM notes ORDER BY id").map(({ id }) => id);
}

/** The copies of the database, whole or not. */
const copies = () => readdirSync(join(folder, "data")).filter((name) => name.includes(".bak"));

/** Has all of these writes wait together, so that they are committed together. */
async function asGroup<W extends readonly Promise<unknown>[]>(
  database: Database,
  write: () => readonly [...W],
): Promise<{ [I in keyof W]: PromiseSettledResult<Awaited<W[I]>> }> {
  const gate = new Int32Array(new SharedArrayBuffer(8));
  const held = database.write.hold(gate);
  await Atomics.waitAsync(gate, 0, 0).value;
  const outcomes = Promise.allSettled(write());
  Atomics.store(gate, 1, 1);
  Atomics.notify(gate, 1);
  await held;
  return outcomes;
}

test("one thread writes to all databases but those with their own, and to those opened later", async () => {
  const [first, second, own] = await Promise.all([
    open(),
    open(migrations, { file: join(folder, "second.sqlite") }),
    open(migrations, { file: join(folder, "own.sqlite"), ownWriter: true }),
  ]);
  const threadId = await first.write.threadId();
  expect(await second.write.threadId()).toBe(threadId);
  expect(await own.write.threadId()).not.toBe(threadId);

  await Promise.all([first, second, own].map((database, index) => database.write.addNote(`of ${index}`)));
  expect([first, second, own].map(notesOf)).toEqual([["of 0"], ["of 1"], ["of 2"]]);
  await first.close();
  await expect(first.write.addNote("late")).rejects.toThrow("closed");
  expect(await second.write.threadId()).toBe(threadId);
  await second.close();
  const third = await open();
  expect(await third.write.threadId()).toBe(threadId);
});

test("a database that is refused leaves the thread to the others", async () => {
  const database = await open();
  await expect(open(["no SQL"], { file: join(folder, "refused.sqlite") })).rejects.toThrow("syntax error");
  expect(await database.write.addNote("a")).toBe("a");
});

test("a read sees every write that was answered", async () => {
  const database = await open();
  for (const id of ["a", "b", "c"]) {
    expect(await database.write.addNote(id)).toBe(id);
    expect(database.read.get("SELECT id FROM notes WHERE id = :id", { id })).toEqual({ id });
  }
});

test("a remembered read sees every write that was answered, the kit's own too", async () => {
  const database = await open();
  const holderOf = database.remember(
    (name) => database.read.get<{ holder: string }>("SELECT holder FROM kit_leases WHERE name = ?", name)?.holder,
  );
  const parentOf = database.remember(
    (id) => database.read.get<{ parent: string }>("SELECT parent FROM notes WHERE id = ?", id)?.parent,
  );
  for (const id of ["a", "b", "c"]) {
    await database.write.addNote(id, { parent: id });
    await database.write.moveNote("a", id);
    expect(parentOf("a")).toBe(id);
    await database.leases.acquire([id], id, 60_000);
    expect(holderOf(id)).toBe(id);
    await database.leases.release([id], id);
    await database.leases.acquire([id], "next", 60_000);
    expect(holderOf(id)).toBe("next");
  }
});

test("what is remembered stays so while events alone are staged and sent", async () => {
  const database = await open();
  await database.write.addNote("a");
  let reads = 0;
  const find = database.remember((id) => {
    reads++;
    return database.read.get<{ id: string }>("SELECT id FROM notes WHERE id = ?", id);
  });
  const readsAnew = () => {
    const before = reads;
    expect(find("a")).toEqual({ id: "a" });
    return reads > before;
  };
  // The first sweep is over.
  await expect.poll(readsAnew).toBe(false);
  await database.publishOnce([{ id: "one", subject: "notes.used", bytes: new Uint8Array() }]);
  await database.outbox.markSent(["one"], "bus");
  expect(readsAnew()).toBe(false);
});

test("a query sees every write that was answered", async () => {
  const database = await open();
  for (const ids of [["a"], ["a", "b"], ["a", "b", "c"]]) {
    await database.write.addNote(ids.at(-1) ?? "");
    expect(await database.query.listNotes()).toEqual(ids);
  }
});

test("reads and writes go on while a query runs, all of which sees the same state", async () => {
  const database = await open();
  await database.write.addNote("a");
  const gate = new Int32Array(new SharedArrayBuffer(8));
  const asked = database.query.listNotesTwice(gate);
  await Atomics.waitAsync(gate, 0, 0).value;
  await database.write.addNote("b");
  expect(notesOf(database)).toEqual(["a", "b"]);
  Atomics.store(gate, 1, 1);
  Atomics.notify(gate, 1);
  expect(await asked).toEqual([["a"], ["a"]]);
  expect(await database.query.listNotes()).toEqual(["a", "b"]);
});

test("however many queries are answered at once, the event loop goes round between any two", async () => {
  const database = await open();
  // Starts the thread.
  await database.query.listNotes();
  const count = new Int32Array(new SharedArrayBuffer(4));
  const queries = 6;
  const order: string[] = [];
  const answered = Promise.all(
    Array.from({ length: queries }, () => database.query.countUp(count).then(() => order.push("answer"))),
  );
  // Posts them, but leaves the event loop no turn.
  for (let step = 0; step < 10; step++) await undefined;
  // Nothing else happens on this thread until they have run.
  for (let seen = 0; seen < queries; seen = Atomics.load(count, 0)) {
    if (Atomics.wait(count, 0, seen, 10_000) === "timed-out") throw new Error(`${queries - seen} queries did not run`);
  }
  const turn = () => {
    order.push("turn");
    if (order.filter((what) => what === "answer").length < queries) setImmediate(turn);
  };
  setImmediate(turn);
  await answered;
  expect(order.join(" ")).not.toContain("answer answer");
});

test("a query that fails says why, and the next is fine", async () => {
  const database = await open();
  await database.write.addNote("a");
  const { query } = database;
  await expect(query.refuse()).rejects.toMatchObject({ reason: "CONFLICT", message: "refused", hint: "ask another" });
  await expect(query.deleteNotes()).rejects.toThrow(/readonly/);
  await expect(query.listNotesLater()).rejects.toThrow(/must not wait/);
  await expect(query.answerFunction()).rejects.toThrow(/could not be cloned/);
  expect(await query.listNotes()).toEqual(["a"]);
});

test("queries that were asked before the database was closed are answered, and later ones fail", async () => {
  const database = await open();
  await database.write.addNote("a");
  const asked = [database.query.listNotes(), database.query.listNotes()];
  await database.close();
  expect(await Promise.all(asked)).toEqual([["a"], ["a"]]);
  await expect(database.query.listNotes()).rejects.toThrow(/closed/);
});

test("the file is private and durable by its settings, and reads can't write", async () => {
  const database = await open();
  expect(statSync(file).mode & 0o777).toBe(0o600);
  expect(database.read.get("PRAGMA journal_mode")).toEqual({ journal_mode: "wal" });
  expect(() => database.read.run("DELETE FROM notes")).toThrow(/readonly/);
});

test("a file gives back the space that it has no more use for", async () => {
  await (await open()).close();
  const filling = new DatabaseSync(file);
  filling.exec(`PRAGMA synchronous = OFF; CREATE TABLE filler (body BLOB);
    WITH RECURSIVE n (i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < 200)
    INSERT INTO filler SELECT zeroblob(1000000) FROM n;
    DROP TABLE filler`);
  filling.close();
  const fullBytes = statSync(file).size;
  const database = await open();
  const freePages = () => Number(database.read.get("PRAGMA freelist_count")?.freelist_count);
  await expect.poll(freePages, { timeout: 60_000 }).toBe(20_480);
  // The file has its new size after the next checkpoint, which comes once enough was written.
  for (const id of ["a", "b", "c"]) await database.write.addNote(id.repeat(2_000_000));
  expect(statSync(file).size).toBeLessThan(fullBytes / 2);
});

test("a DomainError undoes its own transaction alone and arrives as it was thrown", async () => {
  const database = await open();
  const [before, refused, after] = await asGroup(database, () => [
    database.write.addNote("before"),
    database.write.addNoteAndRefuse("refused"),
    database.write.addNote("after"),
  ]);
  expect(before.status).toBe("fulfilled");
  expect(after.status).toBe("fulfilled");
  const error: unknown = refused.status === "rejected" ? refused.reason : undefined;
  expect(error).toBeInstanceOf(DomainError);
  expect(error).toMatchObject({
    reason: "CONFLICT",
    message: "refused",
    hint: "try another",
    violations: [{ field: "id", issue: "is refused" }],
    retryAfterSeconds: 7,
    callersFault: true,
    errno: "EDQUOT",
  });
  expect(notesOf(database)).toEqual(["after", "before"]);
});

test("a failed commit fails every write of its group, and the next group is fine", async () => {
  const database = await open();
  const group = await asGroup(database, () => [
    database.write.addNote("good"),
    database.write.addNote("orphan", { parent: "nobody" }),
    database.write.addNote("good too"),
  ]);
  expect(group.map(({ status }) => status)).toEqual(["rejected", "rejected", "rejected"]);
  expect(notesOf(database)).toEqual([]);
  await database.write.addNote("next");
  expect(notesOf(database)).toEqual(["next"]);
});

test("an error of SQLite keeps its code", async () => {
  const database = await open();
  await database.write.addNote("twice");
  await expect(database.write.addNote("twice")).rejects.toMatchObject({ errcode: 1555 });
});

test("an async transaction is refused and undone", async () => {
  const database = await open();
  await expect(database.write.addNoteLater("later")).rejects.toThrow(/must not wait/);
  expect(notesOf(database)).toEqual([]);
});

test("what can't pass between threads fails its own caller only", async () => {
  const database = await open();
  const [bad, good] = await asGroup(database, () => [
    database.write.answerFunction("bad"),
    database.write.addNote("good"),
  ]);
  expect([bad.status, good.status]).toEqual(["rejected", "fulfilled"]);
  await expect(database.write.addNote("x", { parent: (() => "") as unknown as string })).rejects.toThrow(/clone/);
});

test("commits that stage events wake listeners until they leave", async () => {
  const database = await open();
  const event = (id: string) => ({ id, subject: "s", bytes: new Uint8Array([1]) });
  let staged = 0;
  const leave = database.outbox.onStaged(() => staged++);
  await database.write.addNote("quiet");
  await database.write.addNote("loud", { events: [event("heard")] });
  expect(staged).toBe(1);
  leave();
  await database.write.addNote("unheard", { events: [event("unheard")] });
  expect(staged).toBe(1);
});

test("what the bus has refused doesn't wait long when the clock was set back meanwhile", async () => {
  const { outbox, write } = await open();
  const events = ["before", "since", "due"].map((id) => ({ id, subject: "s", bytes: new Uint8Array([1]) }));
  await write.addNote("note", { events });
  const now = Date.now();
  await outbox.postpone([
    { id: "before", until: new Date(now + 3_600_000) },
    { id: "since", until: new Date(now + 60_000) },
    { id: "due", until: new Date(now) },
  ]);
  expect((await outbox.unsent(10)).map(({ id }) => id)).toEqual(["due", "before"]);
  expect((await outbox.unsent(1)).map(({ id }) => id)).toEqual(["due"]);
});

test("leases are listed as free until they are held, and again once they are released or over", async () => {
  const { leases } = await open();
  await leases.acquire(["one"], "a", 60_000);
  await leases.acquire(["two"], "b", 1);
  await delay(5);
  expect(await leases.listFree(["one", "two", "three"])).toEqual(["two", "three"]);
  await leases.release(["one"], "a");
  expect(await leases.listFree(["one"])).toEqual(["one"]);
});

test("closing waits for what is queued and refuses what comes later", async () => {
  const database = await open();
  const writes = Array.from({ length: 300 }, (_, number) => database.write.addNote(`${number}`));
  await database.close();
  expect(await Promise.all(writes)).toHaveLength(300);
  await expect(database.write.addNote("late")).rejects.toThrow(/closed/);
  await database.close();
  expect(notesOf(await open())).toHaveLength(300);
});

test("a migration runs once, on a file that was copied before", async () => {
  const old = await open();
  await old.write.addNote("kept");
  await old.close();
  const wider = [...migrations, "ALTER TABLE notes ADD COLUMN text TEXT NOT NULL DEFAULT 'none'"];
  for (let start = 0; start < 2; start++) {
    const database = await open(wider);
    expect(database.read.get("SELECT id, text FROM notes")).toEqual({ id: "kept", text: "none" });
    await database.close();
  }
  expect(copies()).toEqual(["notes.sqlite.v6.1.bak"]);
  const copy = new DatabaseSync(join(folder, "data", "notes.sqlite.v6.1.bak"), { readOnly: true });
  expect(copy.prepare("SELECT * FROM notes").all()).toEqual([{ id: "kept", parent: null }]);
  copy.close();
});

test("the copy has its name only once it is whole, whatever an interrupted one has left", async () => {
  const old = await open();
  const filler = "x".repeat(1_000_000);
  for (let number = 0; number < 40; number++) await old.write.addNote(`${number} ${filler}`);
  await old.close();
  const name = join(folder, "data", "notes.sqlite.v6.1.bak");
  writeFileSync(`${name}.partial`, "interrupted");
  let isOpening = true;
  const opening = open([...migrations, "ALTER TABLE notes ADD COLUMN text TEXT"]).finally(() => {
    isOpening = false;
  });
  while (isOpening && !existsSync(name)) await delay(1);
  const copy = new DatabaseSync(name, { readOnly: true });
  expect(copy.prepare("SELECT count(*) AS notes FROM notes").get()).toEqual({ notes: 40 });
  expect(copy.prepare("PRAGMA integrity_check").all()).toEqual([{ integrity_check: "ok" }]);
  copy.close();
  await opening;
  expect(copies()).toEqual(["notes.sqlite.v6.1.bak"]);
  expect(statSync(name).mode & 0o777).toBe(0o600);
});

test("an interrupted migration leaves no copy once the file is opened again, by whatever version", async () => {
  const old = await open();
  await old.close();
  for (const leftover of [".v6.1.bak.partial", ".v6.1.2.bak.partial", ".v6.1.bak.partial-journal"]) {
    writeFileSync(`${file}${leftover}`, "interrupted");
  }
  writeFileSync(join(folder, "data", "other.sqlite.v6.1.bak.partial"), "of another database");
  await open();
  expect(copies()).toEqual(["other.sqlite.v6.1.bak.partial"]);
});

test("a copy that finds no room says which file needs how much, and leaves the room that there was", async () => {
  const old = await open();
  for (const id of ["a", "b", "c"]) await old.write.addNote(id.repeat(1_000_000));
  await old.close();
  // No file of this process may be larger than 1 MB.
  const limited = 'ulimit -f 2000; exec "$0" "$@"';
  const child = fileURLToPath(new URL("./sqlite.fixture.child.ts", import.meta.url));
  const run = promisify(execFile)("sh", ["-c", limited, process.execPath, child, file, "migrate"], { timeout: 50_000 });
  await expect(run).rejects.toMatchObject({
    stderr: expect.stringMatching(`${file} can't be copied before its migration: .*; the copy needs about \\d+ MB`),
  });
  expect(copies()).toEqual([]);
  expect(notesOf(await open())).toHaveLength(3);
});

test("the log names a database before it is copied and migrated, but not one that is new", async () => {
  const logged: unknown[] = [];
  const write = (line: string) => void logged.push(JSON.parse(line));
  for (const steps of [migrations, [...migrations, "ALTER TABLE notes ADD COLUMN text TEXT"]]) {
    await (await open(steps, { logger: pino({}, { write }) })).close();
  }
  expect(logged).toEqual([expect.objectContaining({ file, msg: expect.stringContaining("copying a database") })]);
});

test("responses that an earlier version kept for an Idempotency-Key stay", async ({ folder }) => {
  const file = join(folder, "notes.sqlite");
  const transactions = new URL("./sqlite.fixture.ts", import.meta.url);
  await (await openSqlite({ file, migrations, transactions, logger })).close();
  const earlier = new DatabaseSync(file);
  earlier.exec(`DROP TABLE kit_answers; DROP TABLE kit_answer_usages;
    CREATE TABLE kit_answers (id TEXT PRIMARY KEY, sealed BLOB NOT NULL, expires_at INTEGER NOT NULL, service TEXT, workspace TEXT)
      STRICT, WITHOUT ROWID;
    CREATE INDEX kit_answers_expires ON kit_answers (expires_at);
    DELETE FROM kit_migrations WHERE scope = 'kit' AND version > 4`);
  earlier
    .prepare("INSERT INTO kit_answers (id, sealed, expires_at, service, workspace) VALUES ('a', X'0102', ?, 's', 'w')")
    .run(Date.now() + 3_600_000);
  earlier.close();
  const database = await openSqlite({ file, migrations, transactions, logger });
  expect(await database.idempotency.find("a")).toEqual({ id: "a", sealed: new Uint8Array([1, 2]) });
  const column = { table: "kit_answers", column: "sealed", service: "service", workspace: "workspace" };
  expect(await database.sealed.listOthers(column, "key", 10, undefined)).toEqual([
    { id: "a", sealed: new Uint8Array([1, 2]), service: "s", workspace: "w" },
  ]);
  await database.close();
});

test("a migration that fails changes nothing", async () => {
  const old = await open();
  await old.write.addNote("kept");
  await old.close();
  const refused = `${file} can't be migrated: table notes already exists`;
  for (let start = 0; start < 2; start++) {
    await expect(open([...migrations, "CREATE TABLE fresh (id TEXT); CREATE TABLE notes (id TEXT)"])).rejects.toThrow(
      refused,
    );
    expect(copies()).toEqual([]);
  }
  const database = await open();
  expect(notesOf(database)).toEqual(["kept"]);
  expect(database.read.get("SELECT 1 FROM sqlite_schema WHERE name = 'fresh'")).toBeUndefined();
});

test("a migration of many rows commits them in batches, and goes on after a failure where it was", async () => {
  const old = await open();
  for (const id of ["a", "b", "c", "d", "e"]) await old.write.addNote(id);
  await old.close();
  const copying = [
    ...migrations,
    `CREATE TABLE copies (id TEXT PRIMARY KEY) STRICT;
     CREATE TABLE refused (id TEXT PRIMARY KEY) STRICT;
     INSERT INTO refused (id) VALUES ('d');
     CREATE TRIGGER refuse BEFORE INSERT ON copies WHEN NEW.id IN (SELECT id FROM refused)
       BEGIN SELECT RAISE(ABORT, 'refused'); END;`,
    {
      batches: `INSERT INTO copies (id) SELECT id FROM notes
        WHERE id > (SELECT coalesce(max(id), '') FROM copies) ORDER BY id LIMIT 2`,
    },
    "ALTER TABLE copies ADD COLUMN text TEXT NOT NULL DEFAULT 'none'",
  ];
  // What was committed stays, so the copy is needed, and one is enough.
  for (let start = 0; start < 2; start++) {
    await expect(open(copying)).rejects.toThrow("refused");
    expect(copies()).toEqual(["notes.sqlite.v6.1.bak"]);
  }
  const stopped = new DatabaseSync(file);
  expect(stopped.prepare("SELECT group_concat(id) AS ids FROM copies").get()).toEqual({ ids: "a,b" });
  stopped.exec("DELETE FROM refused");
  stopped.close();
  for (let start = 0; start < 2; start++) {
    const database = await open(copying);
    expect(database.read.get("SELECT group_concat(id) AS ids, max(text) AS text FROM copies")).toEqual({
      ids: "a,b,c,d,e",
      text: "none",
    });
    await database.close();
  }
  expect(copies()).toEqual(["notes.sqlite.v6.1.bak"]);
  await open([...copying, "DROP TABLE copies"]);
  expect(copies()).toHaveLength(2);
});

test("a database of a newer program is refused", async () => {
  await (await open([...migrations, "CREATE TABLE newer (id TEXT)"])).close();
  await expect(open()).rejects.toThrow(/newer version of Sandgate \(service schema 2, this version knows 1\)/);
});

test.each([
  ["writer", "write", "endThread"],
  ["writer", "write", "throwInThread"],
  ["reader", "query", "endThread"],
  ["reader", "query", "throwInThread"],
] as const)("a %s thread that ends by itself ends the process: %s %s", async (role, thread, ending) => {
  const child = spawn(
    process.execPath,
    [fileURLToPath(new URL("./sqlite.fixture.child.ts", import.meta.url)), file, thread, ending],
    { stdio: ["ignore", "pipe", "inherit"], timeout: 50_000 },
  );
  let printed = "";
  child.stdout.setEncoding("utf8").on("data", (text: string) => {
    printed += text;
  });
  const [exitCode] = await once(child, "close");
  expect(exitCode).toBe(1);
  expect(JSON.parse(printed.trim().split("\n").at(-1) ?? "")).toMatchObject({
    level: 60,
    file,
    msg: expect.stringContaining(`${role} thread`),
  });
});

test("a thread without a database keeps no process alive", async () => {
  const child = spawn(
    process.execPath,
    [fileURLToPath(new URL("./sqlite.fixture.child.ts", import.meta.url)), file, "close"],
    { stdio: "inherit", timeout: 50_000 },
  );
  expect(await once(child, "close")).toEqual([0, null]);
});

test("a kill -9 loses nothing that was acknowledged", async () => {
  const child = spawn(process.execPath, [fileURLToPath(new URL("./sqlite.fixture.child.ts", import.meta.url)), file], {
    stdio: ["ignore", "pipe", "inherit"],
  });
  let printed = "";
  child.stdout.setEncoding("utf8").on("data", (text: string) => {
    printed += text;
    if (printed.length > 5000) child.kill("SIGKILL");
  });
  const [, signal] = await once(child, "close");
  expect(signal).toBe("SIGKILL");
  // The last line may be cut.
  const acknowledged = printed.split("\n").slice(0, -1);
  expect(acknowledged.length).toBeGreaterThan(500);
  const kept = new Set(notesOf(await open()));
  expect(acknowledged.filter((id) => !kept.has(id))).toEqual([]);
});

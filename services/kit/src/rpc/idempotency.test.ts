import { join } from "node:path";
import { DatabaseSync } from "node:sqlite";
import { create } from "@bufbuild/protobuf";
import { type ErrorNote, ErrorNoteSchema } from "@sandgate/proto/common/v1/error";
import { test } from "@sandgate/test-support/test";
import { pino } from "pino";
import { afterEach, describe, expect } from "vitest";
import { DomainError } from "../base/domain-error.ts";
import { maxRecordBytes } from "../storage/idempotency-record.ts";
import { type Keyring, openKeyring } from "../storage/sealing.ts";
import { migrations, type transactions } from "../storage/sqlite.fixture.ts";
import { openSqlite, type SqliteDatabase } from "../storage/sqlite.ts";
import type { Call } from "./context.ts";
import { createRunIdempotent } from "./idempotency.ts";

let folder: string;
let database: SqliteDatabase<typeof transactions>;
let keyring: Keyring;
let runIdempotent: ReturnType<typeof createRunIdempotent>;
let works: number;

test.beforeEach(async ({ folder: own }) => {
  folder = own;
  keyring = await openKeyring({ file: join(folder, "keys.json"), create: true });
  database = await openSqlite({
    file: join(folder, "notes.sqlite"),
    migrations,
    transactions: new URL("../storage/sqlite.fixture.ts", import.meta.url),
    logger: pino({ enabled: false }),
  });
  runIdempotent = createRunIdempotent({ keyring, store: database });
  works = 0;
});
afterEach(async () => {
  await database.close();
});

interface Request {
  key?: string;
  user?: string;
  workspace?: string;
  body?: string;
  rpc?: string;
  /** Runs between the look at the stored answers and the transaction. */
  meanwhile?: () => Promise<unknown>;
}

function callOf({ key, user = "ann", workspace }: Request): Call {
  return {
    requestId: "r",
    user: {
      id: user,
      credential: "session",
      credentialId: "s",
      operator: false,
      ...(workspace !== undefined && { workspaceId: workspace }),
    },
    ...(key !== undefined && { idempotencyKey: key }),
    signal: new AbortController().signal,
    timeoutMs: () => undefined,
  };
}

const methodOf = (name: string) => ({ name, input: ErrorNoteSchema, output: ErrorNoteSchema });

/** Adds a note named after the number of times that this test has worked, and returns it. */
function addNote(request: Request = {}): Promise<ErrorNote> {
  const message = create(ErrorNoteSchema, { hint: request.body ?? "" });
  return runIdempotent(callOf(request), methodOf(request.rpc ?? "AddNote"), message, async (recordFor) => {
    const response = create(ErrorNoteSchema, { hint: `note ${++works}` });
    await request.meanwhile?.();
    await database.write.addNote(response.hint, { record: await recordFor(response) });
    return response;
  });
}

const countNotes = () => database.read.get("SELECT count(*) AS notes FROM notes");

test("without a key every call works", async () => {
  expect([(await addNote()).hint, (await addNote()).hint]).toEqual(["note 1", "note 2"]);
});

test("the same key and request gets the first answer again", async () => {
  const first = await addNote({ key: "k", body: "b" });
  expect(await addNote({ key: "k", body: "b" })).toEqual(first);
  expect(countNotes()).toEqual({ notes: 1 });
});

test("the same key with another request is a conflict", async () => {
  await addNote({ key: "k", body: "b" });
  await expect(addNote({ key: "k", body: "c" })).rejects.toMatchObject({ reason: "CONFLICT" });
});

test("a key belongs to a user, a workspace and a method", async () => {
  await addNote({ key: "k" });
  await addNote({ key: "k", user: "bob" });
  await addNote({ key: "k", workspace: "w" });
  await addNote({ key: "k", rpc: "AddOther" });
  expect(works).toBe(4);
});

test("calls at the same time wait for the first and share its answer", async () => {
  const answers = await Promise.all(Array.from({ length: 5 }, () => addNote({ key: "k" })));
  expect(answers.map(({ hint }) => hint)).toEqual(Array(5).fill("note 1"));
  expect(works).toBe(1);
});

test("a failure is not kept: the calls that waited for it do the work", async () => {
  const failing = addNote({ key: "k", meanwhile: () => Promise.reject(new Error("no luck")) });
  const waiting = addNote({ key: "k" });
  await expect(failing).rejects.toThrow("no luck");
  expect((await waiting).hint).toBe("note 2");
});

/** The same call at another replica, so nothing makes it wait. */
function addTheirNote(): Promise<ErrorNote> {
  const runThere = createRunIdempotent({ keyring, store: database });
  return runThere(callOf({ key: "k" }), methodOf("AddNote"), create(ErrorNoteSchema), async (recordFor) => {
    const response = create(ErrorNoteSchema, { hint: "theirs" });
    await database.write.addNote("theirs", { record: await recordFor(response) });
    return response;
  });
}

test("a call that loses the race against another replica gives the winner's answer and leaves nothing", async () => {
  expect((await addNote({ key: "k", meanwhile: addTheirNote })).hint).toBe("theirs");
  expect(countNotes()).toEqual({ notes: 1 });
});

test("a call that fails on what another replica has just created gives the winner's answer", async () => {
  const meanwhile = async () => {
    await addTheirNote();
    throw new DomainError("CONFLICT", "There is such a note.");
  };
  expect((await addNote({ key: "k", meanwhile })).hint).toBe("theirs");
});

test("what is stored is sealed", async () => {
  await addNote({ key: "k" });
  const row = database.read.get<{ sealed: Uint8Array }>("SELECT sealed FROM kit_answers");
  expect(Buffer.from(row?.sealed ?? []).includes("note 1")).toBe(false);
});

describe("what the answers of a day take", () => {
  const keep = (id: string, owner: string, bytes: number) =>
    database.write.addNote(id, {
      record: { id, service: "notes", workspace: "", owner, sealed: new Uint8Array(bytes) },
    });
  const refused = { reason: "RATE_LIMITED", retryAfterSeconds: expect.any(Number) };

  test("is limited for each owner, and nothing is created above it", async () => {
    await keep("a", "w1", maxRecordBytes - 10_000);
    await expect(keep("b", "w1", 10_000)).rejects.toMatchObject(refused);
    await keep("c", "w1", 1_000);
    await keep("d", "w2", 10_000);
    await database.write.addNote("without a key");
    expect(database.read.all("SELECT id FROM notes ORDER BY id").map(({ id }) => id)).toEqual([
      "a",
      "c",
      "d",
      "without a key",
    ]);
  });

  test("is free again once the day is over", async () => {
    await keep("a", "w1", maxRecordBytes - 10_000);
    const other = new DatabaseSync(join(folder, "notes.sqlite"), { timeout: 5_000 });
    other.prepare("UPDATE kit_answer_usages SET ends_at = ?").run(Date.now() - 1);
    other.close();
    await keep("b", "w1", maxRecordBytes - 10_000);
    await expect(keep("c", "w1", 10_000)).rejects.toMatchObject(refused);
  });

  test("counts for the workspace of a call, or for its user", async () => {
    await addNote({ key: "k", user: "ann", workspace: "w1" });
    await addNote({ key: "l", user: "bob", workspace: "w1" });
    await addNote({ key: "k", user: "ann" });
    const owners = database.read.all("SELECT owner FROM kit_answer_usages ORDER BY owner").map(({ owner }) => owner);
    expect(owners).toEqual(["ann", "w1"]);
  });
});

import { auditActions } from "@sandgate/kit/base/audit-actions";
import { createMetrics } from "@sandgate/kit/base/metrics";
import { beforeEach, expect, test } from "vitest";
import { type AuditEntry, type AuditedAction, type AuditRecorder, createAuditRecorder } from "./recorder.ts";

const ann = { id: "ann", credential: "session" as const, credentialId: "s1" };
const refused: AuditedAction = {
  kind: "refused",
  action: "sandbox.stop",
  outcome: "forbidden",
  user: ann,
  address: "192.0.2.1",
  requestId: "r",
};
const failedSignIn: AuditedAction = {
  kind: "sign_in",
  action: "user.sign_in",
  outcome: "invalid_credentials",
  username: "ann@example.com",
  address: "192.0.2.1",
  requestId: "r",
};

let recorder: AuditRecorder;
let entries: AuditEntry[];
let problem: Error | undefined;
let clock: number;
/** How far the time of day was set back. */
let setBackMs: number;
/** Runs during the next call that finds users. */
let whileFinding: (() => void) | undefined;

beforeEach(() => {
  entries = [];
  problem = undefined;
  clock = Date.UTC(2026, 0, 1);
  setBackMs = 0;
  whileFinding = undefined;
  recorder = createAuditRecorder({
    async store(added) {
      if (problem) throw problem;
      entries.push(...added);
    },
    async findUserIds(names) {
      const run = whileFinding;
      whileFinding = undefined;
      run?.();
      return new Map(names.includes("ann@example.com") ? [["ann@example.com", "ann"]] : []);
    },
    metrics: createMetrics(),
    now: () => new Date(clock - setBackMs),
    monotonic: () => clock,
  });
});

/** Lets so many seconds pass, in each of which the recorder is stored. */
async function pass(seconds: number): Promise<void> {
  for (let i = 0; i < seconds; i++) {
    clock += 1_000;
    await recorder.flush().catch((error: unknown) => {
      if (error !== problem) throw error;
    });
  }
}

const counts = () => entries.map(({ count }) => count);

test("what follows is stored at the end of the minute, also when the clock is set back", async () => {
  for (let i = 0; i < 3; i++) recorder.recordAction(refused);
  await pass(2);
  recorder.recordAction(refused);
  setBackMs = 120_000;
  await pass(60);
  expect(counts()).toEqual([3, 1]);
});

test("the first of its kind is stored within a second or two, those that follow together at the end of the minute", async () => {
  recorder.recordAction({ ...refused, requestId: "first", target: { type: "sandbox", id: "b1" } });
  await pass(2);
  expect(entries).toMatchObject([
    {
      action: "sandbox.stop",
      outcome: "forbidden",
      user: ann,
      address: "192.0.2.1",
      target: { type: "sandbox", id: "b1" },
      requestId: "first",
      count: 1,
    },
  ]);
  for (let i = 0; i < 500; i++) recorder.recordAction({ ...refused, target: { type: "sandbox", id: `b${i}` } });
  await pass(30);
  expect(counts()).toEqual([1]);
  await pass(30);
  expect(counts()).toEqual([1, 500]);
  expect(entries[1]).toMatchObject({ user: ann, target: undefined, address: "192.0.2.1" });
  await pass(120);
  expect(counts()).toEqual([1, 500]);
  recorder.recordAction(refused);
  await pass(2);
  expect(counts()).toEqual([1, 500, 1]);
});

test("failed sign-ins are an account's, whatever the addresses; those of nobody are counted by network, without the name", async () => {
  recorder.recordAction(failedSignIn);
  recorder.recordAction({ ...failedSignIn, address: "192.0.2.2" });
  for (const username of ["hunter2 typed in the wrong field", "nobody", "else"]) {
    recorder.recordAction({ ...failedSignIn, username, address: "192.0.2.9" });
  }
  await pass(2);
  for (const username of ["nobody", "ann@example.com"])
    recorder.recordAction({ ...failedSignIn, username, address: "192.0.2.9" });
  await pass(60);
  expect(entries).toMatchObject([
    { target: { type: "user", id: "ann" }, address: undefined, count: 2 },
    { target: undefined, address: "192.0.2.9", count: 3 },
    { target: { type: "user", id: "ann" }, address: undefined, count: 1 },
    { target: undefined, address: "192.0.2.9", count: 1 },
  ]);
  expect(JSON.stringify(entries)).not.toMatch(/hunter2|nobody|example/);
});

test("failed sign-ins that come while users are found are an account's too, and each is counted once", async () => {
  const nobodys = { ...failedSignIn, username: "nobody", address: "192.0.2.9" };
  recorder.recordAction(nobodys);
  whileFinding = () => {
    for (const username of ["else", "another"]) recorder.recordAction({ ...nobodys, username });
    recorder.recordAction(failedSignIn);
  };
  await pass(2);
  const found = [
    { target: undefined, address: "192.0.2.9", count: 3 },
    { target: { type: "user", id: "ann" }, address: "192.0.2.1", count: 1 },
  ];
  expect(entries).toMatchObject(found);
  await pass(60);
  expect(entries).toMatchObject(found);
});

test("a flood is counted in few entries, and nobody's flood hides what others do", async () => {
  for (let i = 0; i < 5_000; i++)
    recorder.recordAction({ ...failedSignIn, username: `name ${i}`, address: "192.0.2.66" });
  recorder.recordAction(failedSignIn);
  await pass(2);
  expect(entries).toHaveLength(3);
  expect(entries).toContainEqual(expect.objectContaining({ target: { type: "user", id: "ann" }, count: 1 }));
  for (let i = 0; i < 5_000; i++)
    recorder.recordAction({ ...failedSignIn, username: `name ${i}`, address: `198.51.${i % 256}.9` });
  await pass(60);
  // Those that are nobody's in particular are counted for an hour.
  await pass(3_600);
  expect(entries.length).toBeLessThanOrEqual(400);
  expect(counts().reduce((sum, count) => sum + count)).toBe(10_001);
});

test("many who are refused in many ways don't hide one who is refused", async () => {
  const hours = 2;
  for (let half = 0; half < hours * 120; half++) {
    for (let i = 0; i < 200; i++) {
      const by = { id: `u${i % 20}`, credential: "session" as const, credentialId: `s${i % 20}` };
      recorder.recordAction({
        ...refused,
        user: by,
        workspaceId: "their own",
        action: auditActions[i % 10] ?? "sandbox.stop",
      });
    }
    recorder.recordAction({
      ...refused,
      user: { ...ann, id: `v${half}`, credentialId: `v${half}` },
      workspaceId: "victim",
    });
    await pass(30);
  }
  await recorder.flushAll();
  const ofVictim = entries.filter(({ workspaceId }) => workspaceId === "victim");
  expect(new Set(ofVictim.map(({ user }) => user?.id)).size).toBe(hours * 120);
});

test("a flood that lasts is written ever more rarely, up to an hour, and at once again once it has ended", async () => {
  const minutes = 6 * 60;
  for (let minute = 0; minute < minutes; minute++) {
    for (let i = 0; i < 100; i++)
      recorder.recordAction({ ...failedSignIn, username: `${minute}`, address: `198.51.${i}.9` });
    for (let i = 0; i < 30; i++)
      recorder.recordAction({ ...refused, user: { ...ann, id: `u${i}`, credentialId: `s${i}` } });
    await pass(60);
  }
  await recorder.flushAll();
  expect(counts().reduce((sum, count) => sum + count)).toBe(minutes * 130);
  expect(entries.filter(({ action }) => action === "sandbox.stop").length).toBeLessThan(2 * 31 * 13);
});

test("what telemetry can't take now is stored once it can, and once only", async () => {
  problem = new Error("away");
  recorder.recordAction(refused);
  await pass(30);
  expect(entries).toEqual([]);
  problem = undefined;
  await pass(10);
  expect(counts()).toEqual([1]);
});

test("while users can't be found, what names none is stored, and the rest is once they can", async () => {
  recorder.recordAction(failedSignIn);
  recorder.recordAction(refused);
  whileFinding = () => {
    throw new Error("away");
  };
  await expect(recorder.flush()).rejects.toThrow("away");
  expect(entries).toMatchObject([{ action: "sandbox.stop", count: 1 }]);
  await pass(2);
  expect(entries).toMatchObject([
    { action: "sandbox.stop", count: 1 },
    { action: "user.sign_in", target: { type: "user", id: "ann" }, count: 1 },
  ]);
});

test("what was recorded is stored at the end", async () => {
  recorder.recordAction(refused);
  recorder.recordAction(refused);
  await recorder.flushAll();
  expect(counts()).toEqual([2]);
});

test("a user who goes on being refused in ever other ways writes few entries, and hides nobody's", async () => {
  const actions = 10;
  const hours = 3;
  for (let minute = 0; minute < hours * 60; minute++) {
    for (let i = 0; i < actions; i++) {
      const tried: AuditedAction = { ...refused, workspaceId: `w${minute}`, action: auditActions[i] ?? "sandbox.stop" };
      recorder.recordAction(tried);
      recorder.recordAction(tried);
    }
    if (minute % 60 === 30) recorder.recordAction({ ...refused, user: { ...ann, id: "bob", credentialId: "s2" } });
    await pass(60);
  }
  await recorder.flushAll();
  expect(counts().reduce((sum, count) => sum + count)).toBe(hours * (60 * 2 * actions + 1));
  expect(entries.length).toBeLessThan(hours * 200);
  expect(entries.filter(({ user }) => user?.id === "bob")).toHaveLength(hours);
});

import { expect, test } from "vitest";
import { type AppendState, areLogsStored, type Batch, decideAppend, isFinal, type StoredSource } from "./batches.ts";

const logs: StoredSource = { containerId: "c", kind: "logs", cursor: "b", final: false };
const metrics: StoredSource = { containerId: "c", kind: "metrics", cursor: "9", final: true };
const sandbox = { workspaceId: "w", sequences: { logs: 3, metrics: 5 }, sources: [logs, metrics] };
const state: AppendState = { isWorkspaceDeleted: false, sandbox };
const batch: Batch = {
  source: { sandboxId: "s", workspaceId: "w", containerId: "c", kind: "logs" },
  fromCursor: "b",
  toCursor: "c",
  chunk: undefined,
  final: true,
};

test("a batch is accepted when it follows the stored cursor, and moves that of its source alone", () => {
  const moved = { ...logs, cursor: "c", final: true };
  expect(decideAppend(state, batch)).toEqual({
    storedCursor: "c",
    sandbox: { ...sandbox, sources: [metrics, moved] },
  });
  expect(decideAppend(state, { ...batch, fromCursor: "a" })).toEqual({ storedCursor: "b" });
});

test("a source's first batch is accepted when it follows nothing", () => {
  const first = { ...state, sandbox: undefined };
  expect(decideAppend(first, { ...batch, fromCursor: "", final: false })).toEqual({
    storedCursor: "c",
    sandbox: { workspaceId: "w", sequences: { logs: 0, metrics: 0 }, sources: [{ ...logs, cursor: "c" }] },
  });
  expect(decideAppend(first, batch)).toEqual({ storedCursor: "" });
});

test("nothing is stored for a deleted workspace, or for another workspace than the sandbox's", () => {
  const refusal = (changes: Partial<AppendState>) => () => decideAppend({ ...state, ...changes }, batch);
  expect(refusal({ isWorkspaceDeleted: true })).toThrow(expect.objectContaining({ reason: "WORKSPACE_NOT_FOUND" }));
  const foreign = { ...sandbox, workspaceId: "x" };
  expect(refusal({ sandbox: foreign })).toThrow(expect.objectContaining({ reason: "CONFLICT" }));
});

test("logs are stored once those of the containers are final, whatever of samples", () => {
  const having = (...sources: StoredSource[]) => ({ ...sandbox, sources });
  const done = { ...logs, final: true };
  expect([areLogsStored(undefined), areLogsStored(having(metrics)), areLogsStored(having(logs))]).toEqual(
    Array(3).fill(false),
  );
  expect(areLogsStored(having(done, { ...metrics, final: false }))).toBe(true);
  expect(areLogsStored(having(done, { ...logs, containerId: "d" }))).toBe(false);
  expect(areLogsStored(having(done, { ...logs, containerId: "d" }), ["c"])).toBe(true);
  expect(areLogsStored(having(done), ["c", "d"])).toBe(false);
  expect([isFinal(having()), isFinal(having(done, metrics)), isFinal(having(logs, metrics))]).toEqual([
    false,
    true,
    false,
  ]);
});

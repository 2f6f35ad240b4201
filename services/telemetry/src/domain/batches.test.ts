import { expect, test } from "vitest";
import { type AppendState, type Batch, decideAppend } from "./batches.ts";

const state: AppendState = { isWorkspaceDeleted: false, sandbox: { workspaceId: "w" }, cursor: "b" };
const batch: Batch = {
  source: { sandboxId: "s", workspaceId: "w", containerId: "c", kind: "logs" },
  fromCursor: "b",
  toCursor: "c",
  chunk: undefined,
  final: false,
};

test("a batch is accepted when it follows the stored cursor, and a source's first when there is none", () => {
  expect(decideAppend(state, batch)).toEqual({ accepted: true, storedCursor: "b" });
  expect(decideAppend(state, { ...batch, fromCursor: "a" })).toEqual({ accepted: false, storedCursor: "b" });
  const first = { ...state, sandbox: undefined, cursor: undefined };
  expect(decideAppend(first, { ...batch, fromCursor: "" })).toEqual({ accepted: true, storedCursor: "" });
  expect(decideAppend(first, batch)).toEqual({ accepted: false, storedCursor: "" });
});

test("nothing is stored for a deleted workspace, or for another workspace than the sandbox's", () => {
  const refusal = (changes: Partial<AppendState>) => () => decideAppend({ ...state, ...changes }, batch);
  expect(refusal({ isWorkspaceDeleted: true })).toThrow(expect.objectContaining({ reason: "WORKSPACE_NOT_FOUND" }));
  expect(refusal({ sandbox: { workspaceId: "x" } })).toThrow(expect.objectContaining({ reason: "CONFLICT" }));
});

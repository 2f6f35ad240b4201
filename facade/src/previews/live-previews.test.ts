import { create } from "@bufbuild/protobuf";
import { timestampFromMs } from "@bufbuild/protobuf/wkt";
import { ConnectError, createClient, createRouterTransport } from "@connectrpc/connect";
import { newId } from "@sandgate/kit/base/ids";
import { hourMs, minuteMs } from "@sandgate/kit/base/time";
import { PreviewSchema, PreviewService } from "@sandgate/proto/sandbox/v1/previews";
import { afterEach, beforeEach, expect, test, vi } from "vitest";
import { createLivePreviews } from "./live-previews.ts";

beforeEach(() => {
  vi.useFakeTimers();
});
afterEach(() => {
  vi.useRealTimers();
});

/** Previews that live until they are deleted from `ends`. */
function openPreviews() {
  const ends = new Map<string, number>();
  const state = { calls: 0, isReachable: true, isMember: true, onCheck: () => {} };
  const transport = createRouterTransport((router) =>
    router.service(PreviewService, {
      checkPreviews({ previewIds }) {
        state.calls++;
        state.onCheck();
        if (!state.isReachable) throw new ConnectError("away");
        const live = previewIds.filter((id) => ends.has(id));
        return { previews: live.map((id) => ({ previewId: id, expiresAt: timestampFromMs(ends.get(id) ?? 0) })) };
      },
    }),
  );
  const previews = createLivePreviews({
    clients: { previews: createClient(PreviewService, transport) },
    scope: { isMember: async () => state.isMember },
  });
  const open = (lifeMs = hourMs) => {
    const preview = create(PreviewSchema, { id: newId(), expiresAt: timestampFromMs(Date.now() + lifeMs) });
    ends.set(preview.id, Date.now() + lifeMs);
    return { preview, ...previews.open(preview) };
  };
  return { open, ends, state, previews };
}

test("what is open ends within a second of a revocation, and other previews stay", async () => {
  const { open, ends } = openPreviews();
  const [revoked, other] = [open(), open()];
  await vi.advanceTimersByTimeAsync(minuteMs);
  expect(revoked.signal.aborted).toBe(false);
  ends.delete(revoked.preview.id);
  await vi.advanceTimersByTimeAsync(1_000);
  expect(revoked.signal.reason).toMatchObject({ reason: "NOT_FOUND" });
  expect(other.signal.aborted).toBe(false);
});

test("it ends with the creator's membership", async () => {
  const { open, state } = openPreviews();
  const { signal } = open();
  await vi.advanceTimersByTimeAsync(1_000);
  state.isMember = false;
  await vi.advanceTimersByTimeAsync(1_000);
  expect(signal.reason).toMatchObject({ reason: "NOT_FOUND" });
});

test("it ends at its time, though nobody can be asked, and not before", async () => {
  const { open, state } = openPreviews();
  const { signal } = open(10_000);
  state.isReachable = false;
  await vi.advanceTimersByTimeAsync(9_999);
  expect(signal.aborted).toBe(false);
  await vi.advanceTimersByTimeAsync(1);
  expect(signal.reason).toMatchObject({ reason: "NOT_FOUND" });
});

test("its end may be moved", async () => {
  const { open, ends } = openPreviews();
  const { signal, preview } = open(10_000);
  ends.set(preview.id, Date.now() + 20_000);
  await vi.advanceTimersByTimeAsync(15_000);
  expect(signal.aborted).toBe(false);
  await vi.advanceTimersByTimeAsync(5_100);
  expect(signal.aborted).toBe(true);
});

test("while it can't be checked it stays open for half a minute", async () => {
  const { open, state } = openPreviews();
  const { signal } = open();
  await vi.advanceTimersByTimeAsync(minuteMs);
  state.isReachable = false;
  await vi.advanceTimersByTimeAsync(29_000);
  expect(signal.aborted).toBe(false);
  await vi.advanceTimersByTimeAsync(3_000);
  expect(signal.reason).toMatchObject({ reason: "UPSTREAM_ERROR" });
});

test("all that is open of one preview is checked together, until the last is closed", async () => {
  const { open, previews, state } = openPreviews();
  const first = open();
  const second = previews.open(first.preview);
  expect(second.signal).toBe(first.signal);
  first.close();
  first.close();
  await vi.advanceTimersByTimeAsync(1_000);
  const { calls } = state;
  expect(calls).toBeGreaterThan(0);
  second.close();
  await vi.advanceTimersByTimeAsync(minuteMs);
  expect(state.calls).toBe(calls);
});

test("one that is closed while it is checked leaves no timer behind", async () => {
  const { open, state } = openPreviews();
  const { close } = open();
  state.onCheck = close;
  await vi.advanceTimersByTimeAsync(1_000);
  expect(state.calls).toBe(1);
  expect(vi.getTimerCount()).toBe(0);
});

import { mebibyte } from "@sandgate/kit/base/sizes";
import { expect, test, vi } from "vitest";
import { createDiskReservations } from "./disk-reservations.ts";

const refusal = expect.objectContaining({ reason: "RUNTIME_UNAVAILABLE" });

/** Pulls on a disk with so many MB, whose clock the test moves. */
function openPulls(roomMb: number) {
  let nowMs = 0;
  const open = createDiskReservations(
    async () => roomMb * mebibyte,
    () => nowMs,
  );
  return {
    pass(seconds: number) {
      nowMs += seconds * 1_000;
    },
    /** A pull that waits for its registry and gives its space back when it is stopped, unless it does so later. */
    begin(workspaceId: string, o: { releasesLater?: boolean } = {}) {
      const stopped = new AbortController();
      const stop = vi.fn(() => {
        stopped.abort(new Error("stopped"));
        if (!o.releasesLater) pull.release();
      });
      const pull = open(workspaceId, stopped.signal, stop);
      pull.setWaiting(true);
      const reserve = (mb: number) => pull.reserve(0, mb * mebibyte);
      return { ...pull, stop, reserve, check: (mb: number) => pull.check(mb * mebibyte) };
    },
  };
}

test("the pulls of a workspace have half of the room at most, with what they have already", async () => {
  const { begin } = openPulls(100);
  const [first, second, other] = [begin("w1"), begin("w1"), begin("w2")];
  await first.reserve(30);
  await second.reserve(20);
  await expect(second.reserve(1)).rejects.toThrow(refusal);
  await expect(second.check(1)).rejects.toThrow(refusal);
  await other.reserve(50);
  await expect(begin("w3").reserve(1)).rejects.toThrow(refusal);
  first.release();
  await second.reserve(30);
});

test("what reserve at once never have more than there is", async () => {
  const { begin } = openPulls(100);
  const reserved = await Promise.allSettled(Array.from({ length: 20 }, (_, index) => begin(`w${index}`).reserve(10)));
  expect(reserved.filter(({ status }) => status === "fulfilled")).toHaveLength(10);
});

test("a pull that has become slow is stopped when another needs its space, and only then", async () => {
  const { begin, pass } = openPulls(100);
  const [slow, fast, other] = [begin("w1"), begin("w2"), begin("w3")];
  await slow.reserve(45);
  await fast.reserve(25);
  await expect(other.reserve(40)).rejects.toThrow(refusal);
  for (const _ of [1, 2, 3, 4]) {
    pass(10);
    await fast.reserve(5);
    await slow.reserve(1);
  }
  expect(slow.stop).not.toHaveBeenCalled();
  await other.check(40);
  expect(slow.stop).not.toHaveBeenCalled();
  await other.reserve(40);
  expect([slow, fast].map(({ stop }) => stop.mock.calls.length)).toEqual([1, 0]);
});

test("of slow pulls, the largest are stopped, no more than needed, and none when that isn't enough", async () => {
  const { begin, pass } = openPulls(100);
  const [small, large, held, other] = [begin("w1"), begin("w2"), begin("w3"), begin("w4")];
  await small.reserve(10);
  await large.reserve(40);
  await held.reserve(20);
  // The engine has it now: no registry makes that slow.
  held.setWaiting(false);
  pass(60);
  const all = begin("w5");
  await all.reserve(25);
  await expect(other.reserve(50.5)).rejects.toThrow(refusal);
  await expect(begin("w5").reserve(24)).resolves.toBeUndefined();
  expect([small, large, held, all].map(({ stop }) => stop.mock.calls.length)).toEqual([0, 1, 0, 0]);
});

test("of slow pulls that need space at once, one has it and the others end", async () => {
  const { begin, pass } = openPulls(100);
  const pulls = ["w1", "w2", "w3"].map((workspace) => begin(workspace, { releasesLater: true }));
  for (const pull of pulls) await pull.reserve(33);
  pass(60);
  const outcomes = await Promise.allSettled(
    pulls.map(async ({ reserve, release }) =>
      reserve(2).catch((error: unknown) => {
        release();
        throw error;
      }),
    ),
  );
  expect(outcomes.map(({ status }) => status)).toEqual(["fulfilled", "rejected", "fulfilled"]);
});

test("a pull that is stopped while it waits for others waits no longer, and reserves nothing more", async () => {
  const { begin, pass } = openPulls(100);
  const [slow, waiting] = [begin("w1", { releasesLater: true }), begin("w2", { releasesLater: true })];
  const held = begin("w3");
  held.setWaiting(false);
  await slow.reserve(50);
  await waiting.reserve(10);
  await held.reserve(30);
  pass(60);
  const reserving = waiting.reserve(20);
  reserving.catch(() => {});
  await expect.poll(() => slow.stop.mock.calls.length).toBe(1);
  waiting.stop();
  await expect(reserving).rejects.toThrow("stopped");
  await expect(waiting.reserve(1)).rejects.toThrow("stopped");
  waiting.release();
  slow.release();
  await begin("w4").reserve(50);
});

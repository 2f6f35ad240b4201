import { getEventListeners } from "node:events";
import { expect, test } from "vitest";
import { aborted, followSignal, untilAborted } from "./abort.ts";

const never = new Promise<never>(() => {});
const waitersOf = (signal: AbortSignal) => getEventListeners(signal, "abort").length;

test("a promise that settles first is answered, and nothing stays at its signal", async () => {
  const { signal } = new AbortController();
  expect(await untilAborted(Promise.resolve("done"), signal, () => "aborted")).toBe("done");
  const failure = new Error("failed");
  await expect(untilAborted(Promise.reject(failure), signal, () => "aborted")).rejects.toBe(failure);
  expect(waitersOf(signal)).toBe(0);
});

test("an abort ends the wait with what is made of its reason", async () => {
  const controller = new AbortController();
  const { signal } = controller;
  const answered = untilAborted(never, signal, (reason) => `for ${reason}`);
  const thrown = untilAborted(never, signal, (reason): never => {
    throw reason;
  });
  controller.abort("a reason");
  expect(await answered).toBe("for a reason");
  await expect(thrown).rejects.toBe("a reason");
  expect(waitersOf(signal)).toBe(0);
});

test("a failure after the caller stopped waiting harms nobody", async () => {
  const controller = new AbortController();
  const work = Promise.withResolvers<never>();
  const waiting = untilAborted(work.promise, controller.signal, () => "left");
  controller.abort();
  expect(await waiting).toBe("left");
  work.reject(new Error("too late"));
});

test("a signal that has aborted already goes before a promise that has settled", async () => {
  expect(await untilAborted(Promise.resolve("done"), AbortSignal.abort(), () => "aborted")).toBe("aborted");
  await aborted(AbortSignal.abort());
});

test("a controller follows a signal, one that has aborted already included, and not the other way round", () => {
  const [leader, follower] = [new AbortController(), new AbortController()];
  followSignal(follower, leader.signal);
  expect(follower.signal.aborted).toBe(false);
  leader.abort("a reason");
  expect(follower.signal.reason).toBe("a reason");
  const late = new AbortController();
  followSignal(late, leader.signal);
  expect(late.signal.reason).toBe("a reason");
  const other = new AbortController();
  followSignal(late, other.signal);
  late.abort();
  expect(other.signal.aborted).toBe(false);
});

test("an abort alone is waited for", async () => {
  const controller = new AbortController();
  let isOver = false;
  const waiting = aborted(controller.signal).then(() => {
    isOver = true;
  });
  await Promise.resolve();
  expect(isOver).toBe(false);
  controller.abort();
  await waiting;
});

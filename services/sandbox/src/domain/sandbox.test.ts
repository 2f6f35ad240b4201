import fc from "fast-check";
import { expect, test } from "vitest";
import {
  acceptSandbox,
  becomeReady,
  beginStop,
  completeStop,
  endOf,
  extend,
  fail,
  hasEnded,
  isLive,
  recordPulled,
  recordStarted,
  type Sandbox,
} from "./sandbox.ts";

const t0 = new Date("2026-01-01T00:00:00Z");

const after = (seconds: number) => new Date(t0.getTime() + seconds * 1000);

function accept(ttlSeconds?: number): Sandbox {
  return acceptSandbox({
    id: "s1",
    name: "one",
    workspaceId: "w1",
    image: {
      imageId: "i1",
      reference: "docker.io/library/busybox:latest",
      registryId: "",
      isDefault: false,
      memoryMb: 256,
      ...(ttlSeconds === undefined ? {} : { ttlSeconds }),
    },
    labels: {},
    createdBy: "u1",
    now: t0,
  });
}

test("the time to live counts from the engine's start and is set once", () => {
  const first = recordStarted(accept(60), { createdAt: t0, startedAt: new Date(t0.getTime() + 5_000) }, t0);
  expect(first.expiresAt).toEqual(new Date(t0.getTime() + 65_000));
  const again = recordStarted(first, { createdAt: t0, startedAt: new Date(t0.getTime() + 9_000) }, t0);
  expect(again.expiresAt).toEqual(first.expiresAt);
  expect(again.timeline).toEqual(first.timeline);
});

test("the timeline is in order, though the runtime's times are to the second, or by another clock", () => {
  const at = (ms: number) => new Date(t0.getTime() + ms);
  const accepted = { ...accept(), timeline: [{ phase: "accepted" as const, at: at(400) }] };
  const pulled = recordPulled(accepted, { pinnedReference: "p", digest: "d" }, at(700));
  const started = recordStarted(pulled, { createdAt: t0, startedAt: at(1_000) }, at(1_100));
  const ended = fail(becomeReady(started, at(900)), { reason: "exited", message: "over" }, at(1_500));
  expect(ended.timeline).toEqual([
    { phase: "accepted", at: at(400) },
    { phase: "image_pulled", at: at(700) },
    { phase: "created", at: at(700) },
    { phase: "started", at: at(1_000) },
    { phase: "ready", at: at(1_000) },
    { phase: "stopped", at: at(1_500) },
  ]);
});

test("the time to live counts from the start that the timeline has, where the runtime's is earlier", () => {
  const at = (ms: number) => new Date(t0.getTime() + ms);
  const pulled = recordPulled(accept(60), { pinnedReference: "p", digest: "d" }, at(700));
  const times = { createdAt: t0, startedAt: t0 };
  for (const started of [recordStarted(pulled, times, at(900)), becomeReady(pulled, at(900), times)]) {
    expect(started.timeline).toContainEqual({ phase: "started", at: at(700) });
    expect(started).toMatchObject({ startedAt: at(700), expiresAt: at(60_700) });
  }
});

test("a time to live of its own goes before the image's", () => {
  const started = recordStarted({ ...accept(600), ttlSeconds: 60 }, { createdAt: t0, startedAt: t0 }, t0);
  expect(started.expiresAt).toEqual(after(60));
});

test("an extension counts from now, and shortens only when it may", () => {
  const started = recordStarted(accept(), { createdAt: t0, startedAt: t0 }, t0);
  const ready = { ...started, expiresAt: after(100) };
  expect(extend(ready, { ttlSeconds: 90, shorten: false }, after(20))).toMatchObject({
    expiresAt: after(110),
    version: ready.version + 1,
  });
  expect(extend(ready, { ttlSeconds: 80, shorten: false }, after(20))).toBe(ready);
  expect(extend(ready, { ttlSeconds: 60, shorten: true }, after(20)).expiresAt).toEqual(after(80));
  // One without an end has none that could be later.
  expect(extend(started, { ttlSeconds: 60, shorten: false }, t0)).toBe(started);
  expect(extend(started, { ttlSeconds: 60, shorten: true }, t0).expiresAt).toEqual(after(60));
});

test("an extension ends at the image's time to live, counted from the start", () => {
  const ready = recordStarted({ ...accept(600), ttlSeconds: 60 }, { createdAt: t0, startedAt: t0 }, t0);
  expect(extend(ready, { ttlSeconds: 590, shorten: false }, after(10)).expiresAt).toEqual(after(600));
  expect(() => extend(ready, { ttlSeconds: 591, shorten: false }, after(10))).toThrow(
    expect.objectContaining({ reason: "CONFLICT", hint: expect.stringMatching(/600.*00:10:00\.000Z/) }),
  );
});

test("a sandbox ends when it was not used for its idle time, or at the end of its time to live before", () => {
  const ready = becomeReady(accept(), t0);
  expect(endOf(ready)).toBeUndefined();
  const mayBeIdle = { ...ready, idleTimeoutSeconds: 60 };
  // A use of that very moment may be recorded some seconds later.
  expect(endOf(mayBeIdle)).toEqual({ at: after(66), reason: "idle" });
  expect(endOf({ ...mayBeIdle, lastUsedAt: after(30) })).toEqual({ at: after(96), reason: "idle" });
  expect(endOf({ ...mayBeIdle, expiresAt: after(50) })).toEqual({ at: after(50), reason: "ttl_expired" });
  expect(endOf({ ...mayBeIdle, expiresAt: after(90) })).toEqual({ at: after(66), reason: "idle" });
});

test("without a time to live nothing expires", () => {
  expect(recordStarted(accept(), { createdAt: t0, startedAt: t0 }, t0).expiresAt).toBeUndefined();
});

test("an ended sandbox never changes its state again, and every change raises the version by one", () => {
  const changes: ((sandbox: Sandbox) => Sandbox)[] = [
    (sandbox) => becomeReady(sandbox, t0),
    (sandbox) => beginStop(sandbox, "stopped_by_user", t0),
    (sandbox) => completeStop(sandbox, { exitCode: 143 }, t0),
    (sandbox) => fail(sandbox, { reason: "exited", message: "over", exitCode: 0 }, t0),
  ];
  fc.assert(
    fc.property(fc.array(fc.nat(changes.length - 1), { maxLength: 12 }), (picks) => {
      let sandbox = accept();
      for (const pick of picks) {
        const before = sandbox;
        try {
          sandbox = changes[pick]?.(sandbox) ?? sandbox;
        } catch (error) {
          expect(String(error)).toMatch(/can't go from/);
          continue;
        }
        expect(hasEnded(before.state)).toBe(false);
        expect(sandbox.version).toBe(before.version + 1);
        // Once it has given up its name it never reserves it again.
        expect(isLive(before.state) || !isLive(sandbox.state)).toBe(true);
      }
    }),
  );
});

import { setTimeout as delay } from "node:timers/promises";
import { untilAborted } from "@sandgate/kit/base/abort";
import { DomainError } from "@sandgate/kit/base/domain-error";
import { test } from "@sandgate/test-support/test";
import { until } from "@sandgate/test-support/until";
import { Counter, Histogram } from "prom-client";
import { expect } from "vitest";
import { beginStop, type Sandbox } from "../domain/sandbox.ts";
import { purgeWorkspace } from "../usecases/purge-workspace.ts";
import {
  changes,
  engine,
  holdClock,
  passMinute,
  provision,
  reaches,
  read,
  reconciler,
  start,
  stopByUser,
  store,
  useReconciler,
} from "./reconciler.fixture.ts";

useReconciler();

test("gives a container that its user stops time to end, then removes it", async () => {
  await start();
  const id = await provision();
  await reaches(id, "ready");
  await stopByUser(id);
  const sandbox = await reaches(id, "stopped", "stopped_by_user");
  expect(sandbox.exitCode).toBe(143);
  expect(engine.stops[0]).toEqual([id, 10]);
  await until(async () => expect((await read(id)).cleanedAt).toBeDefined());
  expect(engine.objects.size).toBe(0);
});

test("distinguishes out of memory from an exit, before and after readiness", async () => {
  await start();
  engine.ready = false;
  const early = await provision();
  await until(() => expect(engine.objects.has(early)).toBe(true));
  engine.exit(early, { exitCode: 0 });
  expect((await reaches(early, "failed", "exited")).exitCode).toBe(0);
  engine.ready = true;
  const late = await provision();
  await reaches(late, "ready");
  engine.exit(late, { exitCode: 137, outOfMemory: true });
  await reaches(late, "failed", "out_of_memory");
});

test("a sandbox that wrote more than it may fails, before and after readiness, and is killed and removed", async () => {
  await start();
  const within = await provision();
  engine.written.set(within, 16 * 1024 * 1024);
  const late = await provision();
  await reaches(late, "ready");
  engine.written.set(late, 16 * 1024 * 1024 + 1);
  engine.ready = false;
  const early = await provision();
  engine.written.set(early, 120 * 1024 * 1024);
  for (const id of [late, early]) {
    expect((await reaches(id, "failed", "disk_full")).message).toContain("16 MB");
    await until(async () => expect((await read(id)).cleanedAt).toBeDefined());
    expect(engine.stops).toContainEqual([id, 0]);
  }
  expect([...engine.objects.keys()]).toEqual([within]);
  await reaches(within, "ready");
});

test("a sandbox that wrote more than it may while the platform was away fails", async () => {
  await start();
  const id = await provision();
  await reaches(id, "ready");
  await reconciler.stop();
  engine.written.set(id, 120 * 1024 * 1024);
  await start();
  await reaches(id, "failed", "disk_full");
});

test("kills an expired sandbox at once, also one that expired while the reconciler was stopped", async () => {
  await start();
  const id = await provision({ ttlSeconds: 60 });
  const ready = await reaches(id, "ready");
  await reconciler.stop();
  await store.sandboxes.update({ ...ready, version: ready.version + 1, expiresAt: new Date(Date.now() - 1) }, []);
  await start();
  await reaches(id, "stopped", "ttl_expired");
  expect(engine.stops[0]).toEqual([id, 0]);
});

test("one that is extended outlives its first end, also over a restart, and one that is shortened doesn't", async () => {
  await start();
  const ids = await Promise.all([provision({ ttlSeconds: 60 }), provision({ ttlSeconds: 60 })]);
  const [longer, shorter] = await Promise.all(ids.map((id) => reaches(id, "ready")));
  if (!longer || !shorter) throw new Error("two were provisioned");
  const endIn = async (sandbox: Sandbox, ms: number) => {
    await store.sandboxes.update(
      { ...sandbox, version: sandbox.version + 1, expiresAt: new Date(Date.now() + ms) },
      [],
    );
    changes.announce(sandbox.id);
  };
  await endIn(shorter, 500);
  await reaches(shorter.id, "stopped", "ttl_expired");
  await endIn(longer, 200);
  await reconciler.stop();
  await endIn(await read(longer.id), 60_000);
  await delay(300);
  await start();
  const another = await provision();
  await reaches(another, "ready");
  expect((await read(longer.id)).state).toBe("ready");
});

test("an idle sandbox is killed after its idle time; one that is used, here or by another replica, is not", async () => {
  const used: string[] = [];
  await start({
    recordUses: async () => store.activity.recordUses(used.map((sandboxId) => ({ sandboxId, at: new Date() }))),
  });
  const ids = await Promise.all([1, 2, 3].map(() => provision({ idleTimeoutSeconds: 60 })));
  const [idle, usedHere, usedElsewhere] = await Promise.all(ids.map((id) => reaches(id, "ready")));
  if (!idle || !usedHere || !usedElsewhere) throw new Error("three were provisioned");
  await reconciler.stop();
  const longAgo = new Date(Date.now() - 70_000);
  for (const sandbox of [idle, usedHere, usedElsewhere]) {
    await store.sandboxes.update({ ...sandbox, version: sandbox.version + 1, readyAt: longAgo }, []);
  }
  await store.activity.recordUses([{ sandboxId: usedElsewhere.id, at: new Date() }]);
  used.push(usedHere.id);
  await start({
    recordUses: async () => store.activity.recordUses(used.map((sandboxId) => ({ sandboxId, at: new Date() }))),
  });
  await reaches(idle.id, "stopped", "idle");
  expect(engine.stops).toContainEqual([idle.id, 0]);
  await until(async () => expect((await read(usedHere.id)).lastUsedAt).toBeDefined());
  for (const { id } of [usedHere, usedElsewhere]) expect((await read(id)).state).toBe("ready");
});

test("a command that runs keeps a sandbox, and one that has ended does for the idle time", async () => {
  const longAgo = new Date(Date.now() - 100_000);
  const lastRuns = new Map<string, Date>();
  const asked: string[] = [];
  await start();
  const ids = await Promise.all([1, 2, 3].map(() => provision({ idleTimeoutSeconds: 60 })));
  const [never, ended, running] = await Promise.all(ids.map((id) => reaches(id, "ready")));
  if (!never || !ended || !running) throw new Error("three were provisioned");
  await reconciler.stop();
  for (const sandbox of [never, ended, running]) {
    await store.sandboxes.update({ ...sandbox, version: sandbox.version + 1, readyAt: longAgo }, []);
  }
  const usedAt = new Date(longAgo.getTime() + 1_000);
  await store.activity.recordUses([ended, running].map(({ id }) => ({ sandboxId: id, at: usedAt })));
  lastRuns.set(ended.id, new Date(Date.now() - 67_000));
  lastRuns.set(running.id, new Date());
  await start({
    findLastRun: async (id) => {
      asked.push(id);
      return lastRuns.get(id);
    },
  });
  await reaches(never.id, "stopped", "idle");
  expect((await reaches(ended.id, "stopped", "idle")).lastUsedAt).toEqual(lastRuns.get(ended.id));
  await until(async () => expect((await read(running.id)).lastUsedAt).toEqual(lastRuns.get(running.id)));
  expect((await read(running.id)).state).toBe("ready");
  // The helper of a sandbox that nobody has used isn't started.
  expect(asked).not.toContain(never.id);
});

test("a sandbox whose helper nobody reaches ends all the same: its container did, its time is over, its disk is full", async () => {
  await start();
  const ids = await Promise.all([1, 2, 3].map(() => provision({ idleTimeoutSeconds: 60 })));
  const [exited, expired, full] = await Promise.all(ids.map((id) => reaches(id, "ready")));
  if (!exited || !expired || !full) throw new Error("three were provisioned");
  await reconciler.stop();
  const usedAt = new Date(Date.now() - 100_000);
  for (const sandbox of [exited, expired, full]) {
    const expiresAt = new Date(Date.now() + (sandbox === expired ? -1 : 60_000));
    await store.sandboxes.update({ ...sandbox, version: sandbox.version + 1, readyAt: usedAt, expiresAt }, []);
  }
  await store.activity.recordUses(ids.map((sandboxId) => ({ sandboxId, at: usedAt })));
  engine.exit(exited.id, { exitCode: 137 });
  engine.written.set(full.id, 120 * 1024 * 1024);
  await start({
    async findLastRun() {
      throw new DomainError("RUNTIME_UNAVAILABLE", "It can't be reached.");
    },
  });
  await reaches(exited.id, "failed", "exited");
  await reaches(expired.id, "stopped", "ttl_expired");
  await reaches(full.id, "failed", "disk_full");
});

test("a container that exits at once has its start recorded, and its logs are read before it is removed", async () => {
  const drained: string[] = [];
  await start({
    async awaitDrained(id) {
      expect(engine.objects.has(id)).toBe(true);
      drained.push(id);
      return true;
    },
  });
  engine.exitsAtOnce = true;
  const id = await provision();
  const sandbox = await reaches(id, "failed", "exited");
  expect(sandbox.timeline.map(({ phase }) => phase)).toEqual([
    "accepted",
    "image_pulled",
    "created",
    "started",
    "stopped",
  ]);
  expect(sandbox.startedAt).toEqual(engine.objects.get(id)?.startedAt ?? sandbox.startedAt);
  await until(async () => expect((await read(id)).cleanedAt).toBeDefined());
  expect(drained).toEqual([id]);
});

test("what the container started decides whether its logs are read, not what the record knows", async () => {
  const drained: string[] = [];
  await start({
    async awaitDrained(id) {
      drained.push(id);
      return true;
    },
  });
  await reconciler.stop();
  // Stopped by its user between the container's start and the record of it.
  const id = await provision();
  const at = new Date();
  engine.objects.set(id, { sandboxId: id, phase: "running", createdAt: at, startedAt: at });
  await store.sandboxes.update(beginStop(await read(id), "stopped_by_user", new Date()), []);
  await start({
    async awaitDrained(id) {
      drained.push(id);
      return true;
    },
  });
  const sandbox = await reaches(id, "stopped", "stopped_by_user");
  expect(sandbox.startedAt).toEqual(at);
  expect(sandbox.timeline.map(({ phase }) => phase)).toContain("started");
  await until(async () => expect((await read(id)).cleanedAt).toBeDefined());
  expect(drained).toEqual([id]);
});

test("an ended container whose logs nobody can be asked about is removed after its time, and counted", async () => {
  holdClock();
  const lost = new Counter({ name: "lost", help: "lost", registers: [] });
  let asked = 0;
  await start({
    async awaitDrained() {
      asked += 1;
      throw new DomainError("UPSTREAM_ERROR", "telemetry can't be reached.");
    },
    limits: { cpus: 1, pids: 64, pullTimeoutMs: 60_000, readinessTimeoutMs: 60_000, drainTimeoutMs: 60_000 },
    metrics: { readySeconds: new Histogram({ name: "a", help: "a", registers: [] }), logsLost: lost },
  });
  const id = await provision();
  await reaches(id, "ready");
  engine.exit(id, { exitCode: 0 });
  await reaches(id, "failed", "exited");
  await until(() => expect(asked).toBeGreaterThan(1));
  expect(engine.objects.has(id)).toBe(true);
  passMinute();
  await until(async () => expect((await read(id)).cleanedAt).toBeDefined());
  expect(engine.objects.has(id)).toBe(false);
  expect((await lost.get()).values).toMatchObject([{ value: 1 }]);
});

test("a workspace's purge stops live sandboxes first, however many wait for their logs to be read", async () => {
  const drain = Promise.withResolvers<boolean>();
  const awaitDrained = (_id: string, signal: AbortSignal) =>
    untilAborted(drain.promise, signal, (reason): never => {
      throw reason;
    });
  await start({ awaitDrained });
  const waiting = await Promise.all(Array.from({ length: 120 }, () => provision()));
  await Promise.all(waiting.map((id) => reaches(id, "ready")));
  for (const id of waiting) engine.exit(id, { exitCode: 0 });
  await Promise.all(waiting.map((id) => reaches(id, "failed", "exited")));
  const live = await provision();
  await reaches(live, "ready");
  const purge = { store, changes, workspaceId: "w1", signal: new AbortController().signal };
  expect(await purgeWorkspace(purge)).toBe(false);
  await reaches(live, "stopped", "workspace_deleted");
  expect((await read(waiting[0] ?? "")).cleanedAt).toBeUndefined();
  drain.resolve(true);
  await until(async () => expect(await purgeWorkspace(purge)).toBe(true));
});

test("tells why the runtime ended a container, and takes the end of its time for a stop", async () => {
  await start();
  const [evicted, expired] = [await provision(), await provision()];
  for (const id of [evicted, expired]) await reaches(id, "ready");
  engine.exit(evicted, { exitCode: 0, failure: { reason: "evicted", message: "The node was low on memory." } });
  engine.exit(expired, { exitCode: 143, isExpired: true });
  const failed = await reaches(evicted, "failed", "evicted");
  expect([failed.exitCode, failed.message]).toEqual([0, "The node was low on memory."]);
  await reaches(expired, "stopped", "ttl_expired");
});

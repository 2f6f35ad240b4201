import { join } from "node:path";
import { setTimeout as delay } from "node:timers/promises";
import { untilAborted } from "@sandgate/kit/base/abort";
import { DomainError } from "@sandgate/kit/base/domain-error";
import { newId } from "@sandgate/kit/base/ids";
import { createLogger } from "@sandgate/kit/base/logging";
import type { EventBus } from "@sandgate/kit/events/bus";
import { allShards } from "@sandgate/kit/process/shards";
import { test } from "@sandgate/test-support/test";
import { until } from "@sandgate/test-support/until";
import { Counter, Histogram, Registry } from "prom-client";
import { afterEach, expect, vi } from "vitest";
import { acceptSandbox, beginStop, recordPulled, type Sandbox, type SandboxState } from "../domain/sandbox.ts";
import type { RuntimeDisk } from "../runtime/disk.ts";
import type { ImageStore, PullRequest } from "../runtime/images.ts";
import { type Observation, type RuntimeLifecycle, type RuntimeSpec, SandboxRefused } from "../runtime/lifecycle.ts";
import { withoutQuotas } from "../store/store.fixture.ts";
import { openSqliteStore } from "../store/store.sqlite.ts";
import type { SandboxStore } from "../store/store.ts";
import { createChanges } from "../usecases/changes.ts";
import { purgeWorkspace } from "../usecases/purge-workspace.ts";
import { createReconciler, type Reconciler, type ReconcilerOptions } from "./reconciler.ts";

// The reconciler against a scripted runtime; adapters to real engines pass the runtime's contract suite.

interface ScriptedEngine extends RuntimeLifecycle {
  images: Pick<ImageStore, "find">;
  disk: Pick<RuntimeDisk, "measure">;
  pull(request: PullRequest): Promise<void>;
  objects: Map<string, Observation>;
  specs: RuntimeSpec[];
  stops: [string, number][];
  inspected: string[];
  pulls: string[];
  local: Map<string, string>;
  ready: boolean;
  down: boolean;
  refusal: DomainError | undefined;
  holdPull: Promise<void> | undefined;
  /** Containers have ended by the time that their start is answered. */
  exitsAtOnce: boolean;
  /** The runtime has found containers to be ready by the time that their start is answered. */
  startsReady: boolean;
  /** Containers are on their way for as long as this is set, for this reason if any. */
  starting: Pick<Observation, "problem"> | undefined;
  /** Bytes that containers have written. */
  written: Map<string, number>;
  exit(id: string, end: Partial<Observation>): void;
  /** Its events could be read again after a while. */
  reconnect(): void;
}

function createScriptedEngine(): ScriptedEngine {
  let changed = (_id: string | undefined) => {};
  const up = () => {
    if (engine.down) throw new DomainError("RUNTIME_UNAVAILABLE", "The engine is down.");
  };
  const engine: ScriptedEngine = {
    objects: new Map(),
    specs: [],
    stops: [],
    inspected: [],
    pulls: [],
    local: new Map(),
    ready: true,
    down: false,
    refusal: undefined,
    holdPull: undefined,
    exitsAtOnce: false,
    startsReady: false,
    starting: undefined,
    written: new Map(),
    exit(id, end) {
      const object = engine.objects.get(id);
      if (!object) throw new Error("no such object");
      engine.objects.set(id, { ...object, phase: "exited", exitCode: 0, ...end });
      changed(id);
    },
    reconnect: () => changed(undefined),
    async check() {
      up();
    },
    images: {
      async find(reference) {
        up();
        const digest = engine.local.get(reference);
        return digest === undefined ? undefined : { pinnedReference: `local-${digest}`, digest };
      },
    },
    async pull({ pinnedReference, signal }) {
      up();
      engine.pulls.push(pinnedReference);
      await Promise.race([
        engine.holdPull,
        new Promise((_, reject) => {
          signal.addEventListener("abort", () => reject(signal.reason));
        }),
      ]);
    },
    async ensure(spec) {
      up();
      if (engine.refusal) throw engine.refusal;
      engine.specs.push(spec);
      const { sandboxId } = spec;
      if (engine.starting) {
        if (engine.starting.problem?.isFinal) throw new SandboxRefused(engine.starting.problem);
        return { sandboxId, phase: "created", createdAt: new Date(), ...engine.starting };
      }
      const known = engine.objects.get(sandboxId);
      if (known) return known;
      const made: Observation = {
        sandboxId,
        phase: "running",
        createdAt: new Date(),
        startedAt: new Date(),
        ...(engine.startsReady && { isReady: true }),
        ...(engine.exitsAtOnce && { phase: "exited" as const, exitCode: 0 }),
      };
      engine.objects.set(sandboxId, made);
      return made;
    },
    async inspect(id) {
      up();
      engine.inspected.push(id);
      return engine.objects.get(id);
    },
    async probe() {
      up();
      return engine.ready;
    },
    async stop(id, grace) {
      up();
      engine.stops.push([id, grace]);
      if (engine.objects.get(id)?.phase === "running") engine.exit(id, { exitCode: grace > 0 ? 143 : 137 });
    },
    async remove(id) {
      up();
      engine.objects.delete(id);
    },
    async list() {
      up();
      return [...engine.objects.values()];
    },
    disk: {
      async measure(id) {
        up();
        return engine.objects.get(id)?.phase === "running" ? (engine.written.get(id) ?? 0) : undefined;
      },
    },
    async *observe(signal) {
      const queue: (string | undefined)[] = [];
      let wake = () => {};
      changed = (id) => {
        queue.push(id);
        wake();
      };
      signal.addEventListener("abort", () => wake());
      while (!signal.aborted) {
        if (queue.length === 0) await new Promise<void>((resolve) => (wake = resolve));
        else yield { sandboxId: queue.shift() };
      }
    },
  };
  return engine;
}

function createLoopbackBus(): Pick<EventBus, "signal" | "watch"> {
  const listeners = new Set<(body: string) => void>();
  return {
    signal: (_topic, body = "") => {
      for (const listener of listeners) queueMicrotask(() => listener(body));
    },
    watch: (_topic, listener) => {
      listeners.add(listener);
      return () => listeners.delete(listener);
    },
  };
}

let folder: string;
let store: SandboxStore;
let engine: ScriptedEngine;
let reconciler: Reconciler;
let changes: ReturnType<typeof createChanges>;

function start(overrides: Partial<ReconcilerOptions> = {}): Promise<void> {
  const registers: Registry[] = [new Registry()];
  reconciler = createReconciler({
    store,
    runtime: engine,
    images: engine.images,
    runtimeDisk: engine.disk,
    changes,
    shards: allShards,
    async pullImage(sandbox, signal) {
      const pinnedReference = `${sandbox.image.reference}@sha256:aa`;
      await engine.pull({ pinnedReference, registryHost: "registry.example", username: "", password: "", signal });
      return { digest: "sha256:aa", pinnedReference: "sha256:bb" };
    },
    findAccess: async () => ({ registryHost: "registry.example", username: "", password: "", volumes: [] }),
    awaitDrained: async () => true,
    limits: { cpus: 1, pids: 64, pullTimeoutMs: 60_000, readinessTimeoutMs: 60_000, drainTimeoutMs: 30_000 },
    diskMb: 16,
    findFreeBytes: async () => 1_000_000_000,
    confirmOrphanRemoval: false,
    logger: createLogger({ service: "sandbox", level: "silent" }),
    metrics: {
      readySeconds: new Histogram({ name: "a", help: "a", registers }),
      logsLost: new Counter({ name: "b", help: "b", registers }),
    },
    ...overrides,
  });
  return reconciler.start();
}

async function provision(o: { isDefault?: boolean; ttlSeconds?: number; acceptedAt?: Date } = {}): Promise<string> {
  const id = await provisionBefore(o);
  reconciler.wake(id);
  return id;
}

/** Its record alone, as the reconciler finds it when it starts. */
async function provisionBefore(
  o: { isDefault?: boolean; ttlSeconds?: number; acceptedAt?: Date } = {},
): Promise<string> {
  const id = newId();
  const sandbox = acceptSandbox({
    id,
    name: `n-${id}`,
    workspaceId: "w1",
    image: {
      imageId: "i1",
      reference: "registry.example/app:1",
      registryId: "",
      isDefault: o.isDefault ?? false,
      memoryMb: 256,
      ...(o.ttlSeconds === undefined ? {} : { ttlSeconds: o.ttlSeconds }),
    },
    labels: {},
    createdBy: "u1",
    now: o.acceptedAt ?? new Date(),
  });
  await store.sandboxes.create(sandbox, withoutQuotas);
  return id;
}

async function read(id: string): Promise<Sandbox> {
  const sandbox = await store.sandboxes.get(id);
  if (!sandbox) throw new Error(`${id} has no record`);
  return sandbox;
}

async function reaches(id: string, state: SandboxState, reason?: string): Promise<Sandbox> {
  return until(async () => {
    const sandbox = await read(id);
    expect([sandbox.state, sandbox.stateReason]).toEqual([state, reason]);
    return sandbox;
  });
}

async function stopByUser(id: string): Promise<void> {
  await until(async () => {
    expect(await store.sandboxes.update(beginStop(await read(id), "stopped_by_user", new Date()), [])).toBe(true);
  });
  changes.announce(id);
}

test.beforeEach(async ({ folder: own }) => {
  folder = own;
  store = await openSqliteStore({
    file: join(folder, "sandbox.sqlite"),
    logger: createLogger({ service: "sandbox", level: "silent" }),
  });
  engine = createScriptedEngine();
  changes = createChanges(createLoopbackBus());
});

afterEach(async () => {
  await reconciler.stop();
  await store.close();
  vi.useRealTimers();
});

/** Outages and limits of a minute are then as long as the test says, however busy the machine is. */
function holdClock(): void {
  vi.useFakeTimers({ toFake: ["Date"] });
}

function passMinute(): void {
  vi.setSystemTime(Date.now() + 60_000);
}

const phasesToReady = ["accepted", "image_pulled", "created", "started", "ready"];

test("pulls by digest, starts, becomes ready, and records each phase on the timeline", async () => {
  await start();
  const id = await provision({ ttlSeconds: 60 });
  const sandbox = await reaches(id, "ready");
  expect(engine.pulls).toEqual(["registry.example/app:1@sha256:aa"]);
  expect(engine.specs[0]).toMatchObject({ reference: "sha256:bb", memoryMb: 256, pids: 64 });
  expect(sandbox.imageDigest).toBe("sha256:aa");
  expect(sandbox.timeline.map(({ phase }) => phase)).toEqual(phasesToReady);
  expect(sandbox.expiresAt?.getTime()).toBe((sandbox.startedAt?.getTime() ?? 0) + 60_000);
});

test("runs a default image that only the engine has, but authorizes every other image at its registry", async () => {
  await start({
    pullImage: async () => {
      throw new DomainError("IMAGE_PULL_UNAUTHORIZED", "The registry refused.");
    },
  });
  engine.local.set("registry.example/app:1", "sha256:bb");
  await reaches(await provision({ isDefault: true }), "ready");
  await reaches(await provision({ isDefault: false }), "failed", "image_pull_unauthorized");
  expect(engine.specs).toHaveLength(1);
});

test("resumes after a crash from any state", async () => {
  await start();
  const before = await provision();
  await reaches(before, "ready");
  await reconciler.stop();
  // Accepted without a pass; stopping without a stop; exited unseen.
  const accepted = await provision();
  const stopping = await provision();
  await store.sandboxes.update(beginStop(await read(stopping), "stopped_by_user", new Date()), []);
  engine.exit(before, { exitCode: 3 });
  await start();
  await reaches(accepted, "ready");
  await reaches(stopping, "stopped", "stopped_by_user");
  expect((await reaches(before, "failed", "exited")).exitCode).toBe(3);
  await until(() => expect([...engine.objects.keys()]).toEqual([accepted]));
});

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

test("a stop ends a pull that hangs", async () => {
  await start();
  engine.holdPull = new Promise(() => {});
  const id = await provision();
  await until(() => expect(engine.pulls).toHaveLength(1));
  await stopByUser(id);
  await reaches(id, "stopped", "stopped_by_user");
  expect(engine.specs).toEqual([]);
});

test("a stop ends the wait for another pull", async () => {
  await start();
  engine.holdPull = new Promise(() => {});
  for (let i = 0; i < 4; i++) await provision();
  await until(() => expect(engine.pulls).toHaveLength(4));
  const id = await provision();
  await delay(50);
  await stopByUser(id);
  await reaches(id, "stopped", "stopped_by_user");
  expect(engine.pulls).toHaveLength(4);
});

test("a pull that takes too long fails with its own reason", async () => {
  await start({
    limits: { cpus: 1, pids: 64, pullTimeoutMs: 300, readinessTimeoutMs: 60_000, drainTimeoutMs: 30_000 },
  });
  engine.holdPull = new Promise(() => {});
  await reaches(await provision(), "failed", "pull_timeout");
});

test("an image that was pulled before a restart isn't pulled again", async () => {
  const pinnedReference = "sha256:bb";
  engine.local.set(pinnedReference, "sha256:aa");
  await start({
    async pullImage(sandbox) {
      await store.sandboxes.update(recordPulled(sandbox, { pinnedReference, digest: "sha256:aa" }, new Date()), []);
      throw new DomainError("RUNTIME_UNAVAILABLE", "A crash.");
    },
  });
  await reaches(await provision(), "ready");
  expect(engine.pulls).toEqual([]);
  expect(engine.specs[0]).toMatchObject({ reference: "sha256:bb" });
});

test("an unreachable registry is tried again until the retry time is over", async () => {
  holdClock();
  let tries = 0;
  await start({
    pullImage: async () => {
      tries += 1;
      throw new DomainError("REGISTRY_UNREACHABLE", "No answer.");
    },
    limits: {
      cpus: 1,
      pids: 64,
      pullTimeoutMs: 120_000,
      readinessTimeoutMs: 60_000,
      drainTimeoutMs: 30_000,
      registryRetryMs: 60_000,
    },
  });
  const id = await provision();
  await until(() => expect(tries).toBeGreaterThan(1));
  expect((await read(id)).state).toBe("provisioning");
  passMinute();
  await reaches(id, "failed", "registry_unreachable");
});

test.each([
  [1, "ready", 2],
  [40, "failed", 1],
] as const)("a registry that takes no requests for %i s leaves the sandbox %s", async (seconds, state, tries) => {
  let tried = 0;
  await start({
    pullImage: async () => {
      tried += 1;
      if (tried === 1) throw new DomainError("REGISTRY_UNREACHABLE", "Later.", { retryAfterSeconds: seconds });
      return { digest: "sha256:aa", pinnedReference: "sha256:bb" };
    },
  });
  await reaches(await provision(), state, state === "failed" ? "registry_unreachable" : undefined);
  expect(tried).toBe(tries);
});

test("a sandbox that the engine refuses fails with the engine's message", async () => {
  await start();
  engine.refusal = new DomainError("PROVISIONING_FAILED", "no such command");
  expect((await reaches(await provision(), "failed", "start_failed")).message).toBe("no such command");
});

test("rules that can't be set are tried again, and fail a sandbox only when that goes on", async () => {
  holdClock();
  const limits = { cpus: 1, pids: 64, pullTimeoutMs: 300_000, readinessTimeoutMs: 60_000, drainTimeoutMs: 30_000 };
  await start({ limits: { ...limits, isolationRetryMs: 60_000 } });
  const locked = new DomainError("ISOLATION_UNAVAILABLE", "Another app is currently holding the xtables lock.");
  engine.refusal = locked;
  const passing = await provision();
  await delay(200);
  expect((await read(passing)).state).toBe("provisioning");
  engine.refusal = undefined;
  await reaches(passing, "ready");
  engine.refusal = locked;
  const id = await provision();
  await delay(200);
  passMinute();
  const failed = await reaches(id, "failed", "isolation_unavailable");
  expect(failed.message).toBe(locked.message);
});

test("an engine that is down is waited for", async () => {
  await start();
  engine.down = true;
  const id = await provision();
  expect((await read(id)).state).toBe("provisioning");
  engine.down = false;
  await reaches(id, "ready");
});

test("a container that is not ready in time fails, and is removed", async () => {
  await start({
    limits: { cpus: 1, pids: 64, pullTimeoutMs: 60_000, readinessTimeoutMs: 200, drainTimeoutMs: 30_000 },
  });
  engine.ready = false;
  await reaches(await provision(), "failed", "readiness_timeout");
  await until(() => expect(engine.objects.size).toBe(0));
});

test("a container that ends before it is ready is noticed, though its event is lost", async () => {
  await start();
  engine.ready = false;
  const id = await provision();
  const running = await until(() => engine.objects.get(id) ?? expect.fail("there is no container yet"));
  engine.objects.set(id, { ...running, phase: "exited", exitCode: 3 });
  await reaches(id, "failed", "exited");
});

test("a probe that the machine slept through is not the last", async () => {
  await start({
    limits: { cpus: 1, pids: 64, pullTimeoutMs: 60_000, readinessTimeoutMs: 200, drainTimeoutMs: 30_000 },
  });
  let probes = 0;
  engine.probe = async () => {
    probes += 1;
    if (probes === 1) await delay(400);
    return probes > 1;
  };
  await reaches(await provision(), "ready");
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

test("a live sandbox is not lost whose container is there, though no list shows it", async () => {
  await start();
  const id = await provision();
  await reaches(id, "ready");
  const { inspect } = engine;
  let [asked, lists] = [0, 0];
  // The first time it is missing, so that a sweep is wanted.
  engine.inspect = async (sandboxId) => (++asked === 1 ? undefined : inspect(sandboxId));
  engine.list = async () => {
    lists += 1;
    return [];
  };
  reconciler.wake(id);
  await until(() => expect(lists).toBeGreaterThan(3));
  expect((await store.sandboxes.get(id))?.state).toBe("ready");
});

test("a start asks about no sandbox that the list shows running, and each ends at its time all the same", async () => {
  await start();
  const ids = await Promise.all([provision({ ttlSeconds: 60 }), provision({ ttlSeconds: 60 }), provision()]);
  const [ready] = await Promise.all(ids.map((id) => reaches(id, "ready")));
  await reconciler.stop();
  if (!ready) throw new Error("none is ready");
  await store.sandboxes.update({ ...ready, version: ready.version + 1, expiresAt: new Date(Date.now() + 500) }, []);
  engine.inspected = [];
  const { list } = engine;
  let lists = 0;
  // A later list would find it, too.
  engine.list = async () => {
    if (++lists > 1) throw new DomainError("RUNTIME_UNAVAILABLE", "The engine lists no more.");
    return list();
  };
  await start();
  await reaches(ready.id, "stopped", "ttl_expired");
  await until(async () => expect((await read(ready.id)).cleanedAt).toBeDefined());
  expect(new Set(engine.inspected)).toEqual(new Set([ready.id]));
});

test("what changed while the engine's events could not be read is found by a list", async () => {
  await start();
  const ids = await Promise.all([provision(), provision()]);
  for (const id of ids) await reaches(id, "ready");
  const [ended = "", running = ""] = ids;
  const object = engine.objects.get(ended);
  if (!object) throw new Error("no such object");
  engine.objects.set(ended, { ...object, phase: "exited", exitCode: 3 });
  engine.inspected = [];
  engine.reconnect();
  await reaches(ended, "failed", "exited");
  expect(engine.inspected).not.toContain(running);
});

test("a live sandbox is lost only after two complete lists without its container", async () => {
  await start();
  const id = await provision();
  await reaches(id, "ready");
  engine.objects.delete(id);
  reconciler.wake(id);
  await reaches(id, "failed", "runtime_lost");
});

test("removes containers whose record has ended, but not many orphans at once", async () => {
  const old = new Date(Date.now() - 120_000);
  for (let i = 0; i < 12; i++) {
    engine.objects.set(`x${i}`, { sandboxId: `x${i}`, phase: "running", createdAt: old });
  }
  await start();
  const id = await provision();
  await reaches(id, "ready");
  await stopByUser(id);
  await until(async () => expect((await read(id)).cleanedAt).toBeDefined());
  expect(engine.objects.size).toBe(12);
  await reconciler.stop();
  await start({ confirmOrphanRemoval: true });
  await until(() => expect(engine.objects.size).toBe(0));
});

/** Counts the turns of the event loop until the test ends. */
function countTurns(onTestFinished: (end: () => void) => void): () => number {
  let turn = 0;
  const next = () => {
    turn += 1;
    timer = setImmediate(next);
  };
  let timer = setImmediate(next);
  onTestFinished(() => clearImmediate(timer));
  return () => turn;
}

test("others get their turn between the pages of a sweep", async ({ onTestFinished }) => {
  const turn = countTurns(onTestFinished);
  const sandbox = await read(await provisionBefore());
  const turns: number[] = [];
  const pages = [1, 2, 3, 4].map((page) => [{ ...sandbox, id: String(page) }]);
  const list = async () => {
    turns.push(turn());
    return pages.shift() ?? [];
  };
  await start({ store: { ...store, unfinished: { ...store.unfinished, list } } });
  await until(() => expect(turns.length).toBeGreaterThanOrEqual(5));
  expect(new Set(turns).size).toBe(turns.length);
});

test("others get their turn while the runtime tells of all its sandboxes, as after a restart", async ({
  onTestFinished,
}) => {
  const turn = countTurns(onTestFinished);
  const told = Array.from({ length: 1_000 }, (_, index) => ({ sandboxId: String(index) }));
  const readsIn = new Map<number, number>();
  await start({
    runtime: {
      ...engine,
      async *observe() {
        yield* told;
      },
    },
    store: {
      ...store,
      sandboxes: {
        ...store.sandboxes,
        async get() {
          readsIn.set(turn(), (readsIn.get(turn()) ?? 0) + 1);
          return undefined;
        },
      },
    },
  });
  const sum = () => [...readsIn.values()].reduce((all, count) => all + count, 0);
  await until(() => expect(sum()).toBe(told.length));
  expect(Math.max(...readsIn.values())).toBeLessThanOrEqual(50);
});

test("many orphans are counted over the whole engine, however few of them are this replica's", async () => {
  const createdAt = new Date(Date.now() - 120_000);
  const putOrphans = (count: number) => {
    for (let i = 0; i < count; i++) {
      engine.objects.set(`x${i}`, { sandboxId: `x${i}`, phase: "running", createdAt });
    }
  };
  // As one of seven replicas has it.
  const shards = { ...allShards, owns: (id: string) => id === "x0" || id === "x1" || !id.startsWith("x") };
  putOrphans(14);
  await start({ shards });
  await until(() => expect(reconciler.orphanProblem()).toContain("SANDGATE_CONFIRM_ORPHAN_REMOVAL=true"));
  expect(engine.objects.size).toBe(14);
  await reconciler.stop();
  await start({ shards, confirmOrphanRemoval: true });
  await until(() => expect(engine.objects.size).toBe(12));
  expect(reconciler.orphanProblem()).toBeUndefined();
  await reconciler.stop();
  // Few enough: each replica removes its own without being asked.
  engine.objects.clear();
  putOrphans(9);
  await start({ shards });
  await until(() => expect(engine.objects.size).toBe(7));
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

test("a replica that stops gives its shards away before it finishes its steps", async () => {
  let owns = true;
  let gaveAway = false;
  const shards = {
    ...allShards,
    owns: () => owns,
    async stop() {
      owns = false;
      gaveAway = true;
    },
  };
  await start({ shards });
  const id = await provision();
  await reaches(id, "ready");
  const held = Promise.withResolvers<void>();
  const { stop } = engine;
  engine.stop = async (...given) => {
    await held.promise;
    await stop(...given);
  };
  await stopByUser(id);
  await reaches(id, "stopping", "stopped_by_user");
  await delay(50);
  let hasStopped = false;
  const stopping = reconciler.stop().then(() => {
    hasStopped = true;
  });
  await until(() => expect(gaveAway).toBe(true));
  await delay(50);
  const seen = { gaveAway, hasStopped };
  held.resolve();
  await stopping;
  expect(seen).toEqual({ gaveAway: true, hasStopped: false });
});

test("waits for a container that is on its way, and goes on when it is woken", async () => {
  await start();
  engine.starting = {};
  const id = await provision();
  await until(() => expect(engine.specs).not.toHaveLength(0));
  expect((await read(id)).state).toBe("provisioning");
  engine.starting = undefined;
  reconciler.wake(id);
  await reaches(id, "ready");
});

test("a pass is not repeated for what it has written itself", async () => {
  await start();
  engine.starting = {};
  const id = await provision();
  await until(() => expect(engine.specs).toHaveLength(1));
  // The reading of the record that its own announcement causes, and another.
  await store.sandboxes.get(id);
  await delay(20);
  expect(engine.specs).toHaveLength(1);
});

test("what others change while a pass runs gets another pass at once", async () => {
  const held = Promise.withResolvers<void>();
  const limits = { cpus: 1, pids: 64, readinessTimeoutMs: 60_000, drainTimeoutMs: 30_000 };
  let pulls = 0;
  await start({
    limits: { ...limits, pullTimeoutMs: 3_600_000, registryRetryMs: 3_600_000 },
    async pullImage() {
      pulls += 1;
      if (pulls > 1) return { digest: "sha256:aa", pinnedReference: "sha256:bb" };
      await held.promise;
      throw new DomainError("REGISTRY_UNREACHABLE", "busy", { retryAfterSeconds: 3_000 });
    },
  });
  // So no sweep finds it.
  engine.down = true;
  const id = await provision();
  await until(() => expect(pulls).toBe(1));
  const sandbox = await read(id);
  expect(await store.sandboxes.update({ ...sandbox, version: sandbox.version + 1 }, [])).toBe(true);
  changes.announce(id);
  await delay(20);
  held.resolve();
  await until(() => expect(pulls).toBe(2));
});

test("a container is made with the access that its pull was given, and a later one asks anew", async () => {
  const access = { registryHost: "registry.example", username: "", password: "", volumes: ["/data"] };
  let asked = 0;
  await start({
    pullImage: async () => ({ digest: "sha256:aa", pinnedReference: "r/a@sha256:aa", access }),
    async findAccess() {
      asked += 1;
      return { ...access, volumes: [] };
    },
  });
  engine.starting = {};
  const id = await provision();
  await until(() => expect(engine.specs).toHaveLength(1));
  expect([await engine.specs[0]?.findAccess?.(), asked]).toEqual([access, 0]);
  engine.objects.set(id, { sandboxId: id, phase: "created", createdAt: new Date() });
  reconciler.wake(id);
  await until(() => expect(engine.specs.length).toBeGreaterThan(1));
  await engine.specs.at(-1)?.findAccess?.();
  expect(asked).toBe(1);
});

test("a container that its runtime finds ready when it is first seen to run is ready by one change", async () => {
  await start();
  engine.ready = false;
  engine.startsReady = true;
  const sandbox = await reaches(await provision({ ttlSeconds: 60 }), "ready");
  expect(sandbox.timeline.map(({ phase }) => phase)).toEqual(phasesToReady);
  expect(sandbox.expiresAt?.getTime()).toBe((sandbox.startedAt?.getTime() ?? 0) + 60_000);
  // Accepted, pulled, ready.
  expect(sandbox.version).toBe(3);
});

test("gives up a container that does not run in time, with what keeps it from running", async () => {
  const limits = { cpus: 1, pids: 64, readinessTimeoutMs: 60_000, drainTimeoutMs: 30_000 };
  await start({ limits: { ...limits, pullTimeoutMs: 100, schedulingTimeoutMs: 100 } });
  engine.starting = {};
  const id = await provision();
  await delay(250);
  reconciler.wake(id);
  expect((await reaches(id, "failed", "pull_timeout")).message).toBe("The container did not run within 0.2 s.");
  engine.starting = { problem: { reason: "image_pull_failed", message: "disk", isFinal: false } };
  const other = await provision();
  await delay(250);
  reconciler.wake(other);
  expect((await reaches(other, "failed", "image_pull_failed")).message).toBe("disk");
});

test("waits for a place to run, and for a registry, for as long as the settings say", async () => {
  const limits = { cpus: 1, pids: 64, pullTimeoutMs: 60_000, readinessTimeoutMs: 60_000, drainTimeoutMs: 30_000 };
  await start({ limits: { ...limits, schedulingTimeoutMs: 100, registryRetryMs: 100 } });
  for (const reason of ["unschedulable", "registry_unreachable"] as const) {
    engine.starting = { problem: { reason, message: "0/1 nodes", isFinal: false } };
    const id = await provision();
    await until(async () => {
      reconciler.wake(id);
      expect((await read(id)).stateReason).toBe(reason);
    });
  }
});

test("the time before the container was asked for is none that it waited for a place to run", async () => {
  const limits = { cpus: 1, pids: 64, pullTimeoutMs: 3_600_000, readinessTimeoutMs: 60_000, drainTimeoutMs: 30_000 };
  await start({ limits: { ...limits, schedulingTimeoutMs: 60_000 } });
  engine.starting = { problem: { reason: "unschedulable", message: "0/1 nodes", isFinal: false } };
  const id = await provision({ acceptedAt: new Date(Date.now() - 600_000) });
  await until(() => expect(engine.specs).not.toHaveLength(0));
  engine.starting = undefined;
  reconciler.wake(id);
  await reaches(id, "ready");
});

test("fails a sandbox at once with the runtime's own reason when it never will run", async () => {
  await start();
  engine.starting = { problem: { reason: "container_config_error", message: "runs as root", isFinal: true } };
  expect((await reaches(await provision(), "failed", "container_config_error")).message).toBe("runs as root");
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

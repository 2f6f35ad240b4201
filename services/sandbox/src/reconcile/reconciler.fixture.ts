import { join } from "node:path";
import { newId } from "@sandgate/kit/base/ids";
import { createLogger } from "@sandgate/kit/base/logging";
import { allShards } from "@sandgate/kit/process/shards";
import { test } from "@sandgate/test-support/test";
import { until } from "@sandgate/test-support/until";
import { Counter, Histogram, Registry } from "prom-client";
import { afterEach, expect, vi } from "vitest";
import { acceptSandbox, beginStop, type Sandbox, type SandboxState } from "../domain/sandbox.ts";
import { withoutQuotas } from "../store/store.fixture.ts";
import { openSqliteStore } from "../store/store.sqlite.ts";
import type { SandboxStore } from "../store/store.ts";
import { createChanges } from "../usecases/changes.ts";
import { createReconciler, type Reconciler, type ReconcilerOptions } from "./reconciler.ts";
import { createLoopbackBus, createScriptedEngine, type ScriptedEngine } from "./scripted-runtime.fixture.ts";

// The reconciler of each test, against a scripted runtime and a store of its own.

export let store: SandboxStore;
export let engine: ScriptedEngine;
export let reconciler: Reconciler;
export let changes: ReturnType<typeof createChanges>;

export function start(overrides: Partial<ReconcilerOptions> = {}): Promise<void> {
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
    findEnv: async () => ({}),
    awaitDrained: async () => true,
    recordUses: async () => {},
    findLastRun: async () => undefined,
    limits: { cpus: 1, pids: 64, pullTimeoutMs: 60_000, readinessTimeoutMs: 60_000, drainTimeoutMs: 30_000 },
    diskLimits: { mb: 16, inodes: 1_024 },
    findFree: async () => ({ bytes: 1_000_000_000, inodes: 1_000_000 }),
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

interface ProvisionOptions {
  isDefault?: boolean;
  reference?: string;
  ttlSeconds?: number;
  acceptedAt?: Date;
  command?: string[];
  idleTimeoutSeconds?: number;
}

export async function provision(o: ProvisionOptions = {}): Promise<string> {
  const id = await provisionBefore(o);
  reconciler.wake(id);
  return id;
}

/** Its record alone, as the reconciler finds it when it starts. */
export async function provisionBefore(o: ProvisionOptions = {}): Promise<string> {
  const id = newId();
  const sandbox = acceptSandbox({
    id,
    name: `n-${id}`,
    workspaceId: "w1",
    image: {
      imageId: "i1",
      reference: o.reference ?? "registry.example/app:1",
      registryId: "",
      isDefault: o.isDefault ?? false,
      memoryMb: 256,
      ...(o.ttlSeconds === undefined ? {} : { ttlSeconds: o.ttlSeconds }),
    },
    labels: {},
    ...(o.command && { command: o.command }),
    ...(o.idleTimeoutSeconds !== undefined && { idleTimeoutSeconds: o.idleTimeoutSeconds }),
    createdBy: "u1",
    now: o.acceptedAt ?? new Date(),
  });
  await store.sandboxes.create(sandbox, withoutQuotas);
  return id;
}

export async function read(id: string): Promise<Sandbox> {
  const sandbox = await store.sandboxes.get(id);
  if (!sandbox) throw new Error(`${id} has no record`);
  return sandbox;
}

export async function reaches(id: string, state: SandboxState, reason?: string): Promise<Sandbox> {
  return until(async () => {
    const sandbox = await read(id);
    expect([sandbox.state, sandbox.stateReason]).toEqual([state, reason]);
    return sandbox;
  });
}

export async function stopByUser(id: string): Promise<void> {
  await until(async () => {
    expect(await store.sandboxes.update(beginStop(await read(id), "stopped_by_user", new Date()), [])).toBe(true);
  });
  changes.announce(id);
}

/** Opens them for each test of the file that calls this. */
export function useReconciler(): void {
  test.beforeEach(async ({ folder }) => {
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
}

/** Outages and limits of a minute are then as long as the test says, however busy the machine is. */
export function holdClock(): void {
  vi.useFakeTimers({ toFake: ["Date", "performance"] });
}

export function passMinute(): void {
  vi.advanceTimersByTime(60_000);
}

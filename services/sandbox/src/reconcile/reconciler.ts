import { setImmediate as nextTurn } from "node:timers/promises";
import type { DomainError } from "@sandgate/kit/base/domain-error";
import type { Logger } from "@sandgate/kit/base/logging";
import { type PeriodicTask, startPeriodicTask } from "@sandgate/kit/base/periodic-task";
import type { Shards } from "@sandgate/kit/process/shards";
import type { RuntimeLifecycle } from "../runtime/lifecycle.ts";
import type { SandboxStore } from "../store/store.ts";
import type { Changes } from "../usecases/changes.ts";
import { createDiskWatch, type DiskWatchOptions } from "./disk-watch.ts";
import { createLifecycle, type LifecycleOptions } from "./lifecycle.ts";
import { createProvisioning, type ProvisioningOptions } from "./provisioning.ts";
import { createRecords } from "./records.ts";
import { createRetries } from "./retries.ts";
import { createRuntimeHealth } from "./runtime-health.ts";
import { createSweeps } from "./sweep.ts";
import { createWorkQueue, type Next, type Pass } from "./work-queue.ts";

/** A runtime that connects reports all its sandboxes. After this many reports other work gets its turn. */
const reportedAtOnce = 50;
/** How often free disk space is checked. */
const diskCheckMs = 1_000;

export interface ReconcilerOptions {
  store: Pick<SandboxStore, "activity" | "sandboxes" | "unfinished">;
  runtime: RuntimeLifecycle;
  images: ProvisioningOptions["images"];
  runtimeDisk: DiskWatchOptions["runtimeDisk"];
  changes: Changes;
  /** The shards whose sandboxes this process works on. */
  shards: Shards;
  pullImage: ProvisioningOptions["pullImage"];
  findAccess: ProvisioningOptions["findAccess"];
  findEnv: ProvisioningOptions["findEnv"];
  awaitDrained: LifecycleOptions["awaitDrained"];
  recordUses: LifecycleOptions["recordUses"];
  findLastRun: LifecycleOptions["findLastRun"];
  limits: ProvisioningOptions["limits"] & LifecycleOptions["limits"];
  diskLimits: DiskWatchOptions["limits"];
  findFree: DiskWatchOptions["findFree"];
  /** Remove containers without a record, however many there are. See `createOrphanRemoval`. */
  confirmOrphanRemoval: boolean;
  logger: Logger;
  metrics: ProvisioningOptions["metrics"] & LifecycleOptions["metrics"];
}

export interface Reconciler {
  /** Checks the runtime, then works in the background, beginning with a sweep. */
  start(): Promise<void>;
  /** Has this sandbox reconciled soon. Cheap, idempotent. */
  wake(sandboxId: string): void;
  /** What keeps sandboxes from being run, if anything does. */
  runtimeProblem(): DomainError | undefined;
  /** Why containers without a record are kept, if they are. */
  orphanProblem(): string | undefined;
  /**
   * Gives its shards to the other replicas at once, so that they go on while this one finishes its steps; ends all
   * background work, and leaves containers and records as they are.
   */
  stop(): Promise<void>;
}

/**
 * Moves every sandbox's record and its container towards each other. Level-triggered: each pass starts from the record
 * and from what the runtime shows, and every step can be done again, so a crash between any two is repaired by the next
 * pass. One pass over a sandbox runs at a time in a process; across processes compare-and-set decides.
 */
export function createReconciler(o: ReconcilerOptions): Reconciler {
  const { store, runtime, changes, shards, logger } = o;
  const stopping = new AbortController();
  const retries = createRetries();
  /** Of each sandbox that is being worked on: the version of its record that the pass over it knows. */
  const versions = new Map<string, number>();
  const records = createRecords({ ...o, onSaved: ({ id, version }) => versions.set(id, version) });
  const health = createRuntimeHealth(o);
  const queue = createWorkQueue({
    owns: (id) => shards.owns(id),
    work: reconcile,
    onFailure(sandboxId, error) {
      logger.error({ err: error, sandboxId }, "a step of a sandbox failed; will retry");
      return retries.afterFailure(sandboxId);
    },
    onIdle: (sandboxId) => versions.delete(sandboxId),
  });
  const disk = createDiskWatch({ ...o, limits: o.diskLimits, onFull: queue.wake });
  const sweeps = createSweeps({ ...o, owns: (id) => shards.owns(id), health, records: createRecords(o), queue, disk });
  const provision = createProvisioning({ ...o, health, records, retries, disk });
  const lifecycle = createLifecycle({ ...o, records, retries, disk, requestSweep: sweeps.request });
  let stopListening = () => {};
  let diskChecks: PeriodicTask | undefined;

  async function reconcile(id: string, pass: Pass): Promise<Next> {
    const sandbox = await store.sandboxes.get(id);
    if (!sandbox || sandbox.cleanedAt) {
      retries.forget(id);
      return "idle";
    }
    versions.set(id, sandbox.version);
    switch (sandbox.state) {
      case "provisioning":
        return provision(sandbox, pass);
      case "ready":
        return lifecycle.watchReady(sandbox);
      case "stopping":
        return lifecycle.finishStop(sandbox);
      case "stopped":
      case "failed":
        return lifecycle.clean(sandbox, pass.signal);
    }
  }

  /** A pass that made the change itself goes on with it. A stop need not wait for a pull or for readiness. */
  async function reactToChange(id: string): Promise<void> {
    if (!queue.isRunning(id)) return queue.wake(id);
    const sandbox = await store.sandboxes.get(id);
    if (sandbox && sandbox.version === versions.get(id)) return;
    queue.wake(id);
    if (sandbox?.state === "stopping") queue.restart(id);
  }

  async function observeRuntime(): Promise<void> {
    let reported = 0;
    for await (const { sandboxId } of runtime.observe(stopping.signal)) {
      // A sweep finds in one list which sandboxes have changed, and wakes only these.
      if (sandboxId === undefined) sweeps.request();
      else queue.wake(sandboxId);
      reported += 1;
      if (reported % reportedAtOnce === 0) await nextTurn();
    }
  }

  return {
    wake: queue.wake,
    runtimeProblem: health.problem,
    orphanProblem: sweeps.orphanProblem,
    async start() {
      stopListening = changes.listen((id) => {
        reactToChange(id).catch((error) => {
          logger.error({ err: error, sandboxId: id }, "a changed sandbox could not be read");
          queue.wake(id);
        });
      });
      shards.onChange(sweeps.request);
      await health.refresh();
      observeRuntime().catch((error) => {
        if (!stopping.signal.aborted) {
          logger.error({ err: error }, "watching the container engine ended; sweeps go on");
        }
      });
      sweeps.start();
      diskChecks = startPeriodicTask({
        what: "look at the free disk",
        everyMs: diskCheckMs,
        logger,
        work: disk.checkFreeDisk,
      });
    },
    async stop() {
      stopListening();
      stopping.abort();
      await Promise.all([shards.stop(), queue.stop(), sweeps.stop(), diskChecks?.stop(), disk.stop()]);
    },
  };
}

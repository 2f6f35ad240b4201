import { DomainError } from "@sandgate/kit/base/domain-error";
import type { Logger } from "@sandgate/kit/base/logging";
import type { Shards } from "@sandgate/kit/process/shards";
import type { Counter, Histogram } from "prom-client";
import {
  becomeReady,
  beginStop,
  completeStop,
  type FailureReason,
  fail,
  graceSeconds,
  hasEnded,
  isLive,
  recordPulled,
  recordStarted,
  type Sandbox,
  type StopReason,
} from "../domain/sandbox.ts";
import { stageStateEvents } from "../events.ts";
import type { SandboxStore } from "../store/store.ts";
import type { Changes } from "./changes.ts";
import { createFairLimit } from "./fair-limit.ts";
import type { Observation, Runtime } from "./runtime.ts";

/** The registry's word that a workspace may pull a reference, and with what. */
export interface AuthorizedPull {
  digest: string;
  pinnedReference: string;
  registryHost: string;
  username: string;
  password: string;
}

export interface ReconcilerOptions {
  store: SandboxStore;
  runtime: Runtime;
  changes: Changes;
  /** Only these sandboxes are looked at. */
  shards: Shards;
  installationId: string;
  /** Asks the registry anew each time. @throws DomainError of the reasons that `failureOf` knows */
  authorizePull(sandbox: Sandbox, signal: AbortSignal): Promise<AuthorizedPull>;
  /** Resolves true when the ended container's logs were read to the end, false when that took too long. */
  awaitDrained(sandboxId: string, signal: AbortSignal): Promise<boolean>;
  limits: {
    cpus: number;
    pids: number;
    pullTimeoutMs: number;
    readinessTimeoutMs: number;
    /** How long an unreachable registry is tried again. Default 30 s. */
    registryRetryMs?: number;
  };
  /** Remove engine objects without a record whatever their number. See `sweep`. */
  confirmOrphanRemoval: boolean;
  logger: Logger;
  metrics: { readySeconds: Histogram; logsLost: Counter };
}

export interface Reconciler {
  /** First check of the engine, then the first sweep; goes on in the background. */
  start(): Promise<void>;
  /** Has this sandbox looked at soon. Cheap, idempotent. */
  wake(sandboxId: string): void;
  /** What keeps sandboxes from being run, if anything does. */
  trouble(): DomainError | undefined;
  /** Ends all background work, and leaves containers and records as they are. */
  stop(): Promise<void>;
}

const sweepMs = 10_000;
const lostObjectSweepMs = 1_000;
const checkMs = 60_000;
const orphanAgeMs = 60_000;
/** At once, so that no tenant can hold up the others: a start may hang in the engine for 30 s, a pull for minutes. */
const pullsAtOnce = { perKey: 4 };
const startsAtOnce = { perKey: 4, together: 16 };
const probeDelayMs = { first: 20, growth: 1.4, most: 250 };
const retryDelayMs = { first: 250, growth: 2, most: 5_000 };

/** The record changed under a step: read it again and go on from there. */
class Stale extends Error {}

/** A step that has to be tried again later. */
class Later extends Error {}

interface Work {
  abort: AbortController;
  /** Woken meanwhile: look once more before going idle. */
  again: boolean;
  /** Ends the current sleep. */
  nudge: () => void;
  stopping: boolean;
  done: Promise<void>;
}

/** What is remembered of a sandbox between looks. Losing it (a restart) only gives more time. */
interface Trials {
  failures: number;
  registryDownSince?: number;
  engineDownSince?: number;
  timer?: NodeJS.Timeout;
}

/** How a refusal by registry or engine shows on the record. Undefined: not the sandbox's own fault, try again. */
function failureOf(error: unknown): { reason: FailureReason; message: string } | undefined {
  if (!(error instanceof DomainError)) {
    return undefined;
  }
  switch (error.reason) {
    case "IMAGE_PULL_UNAUTHORIZED":
      return { reason: "image_pull_unauthorized", message: error.message };
    case "IMAGE_NOT_FOUND_IN_REGISTRY":
    case "IMAGE_NOT_FOUND":
      return { reason: "image_not_found_in_registry", message: error.message };
    case "REGISTRY_NOT_FOUND":
      return { reason: "image_pull_unauthorized", message: "The image's registry credential was removed." };
    case "ISOLATION_UNAVAILABLE":
      return { reason: "isolation_unavailable", message: error.message };
    case "PROVISIONING_FAILED":
      return { reason: "start_failed", message: error.message };
    case "VALIDATION_ERROR":
      return { reason: "start_failed", message: error.message };
    default:
      return undefined;
  }
}

/** How a container that is no longer running shows on the record. */
function endOf(seen: Observation): { reason: FailureReason; message: string; exitCode?: number } {
  const exitCode = seen.exitCode === undefined ? {} : { exitCode: seen.exitCode };
  return seen.outOfMemory
    ? { reason: "out_of_memory", message: "The container used more memory than its limit and was killed.", ...exitCode }
    : { reason: "exited", message: `The container exited with code ${seen.exitCode ?? "unknown"}.`, ...exitCode };
}

/**
 * Moves every sandbox's record and its engine object towards each other. Level-triggered: each look starts from the
 * record and from what the engine shows, and every step can be done again, so a crash between any two is repaired by
 * the next look. One look at a sandbox runs at a time in a process; across processes compare-and-set decides.
 */
export function createReconciler(o: ReconcilerOptions): Reconciler {
  const { store, runtime, changes, shards, logger } = o;
  const registryRetryMs = o.limits.registryRetryMs ?? 30_000;
  const works = new Map<string, Work>();
  const trials = new Map<string, Trials>();
  const limitPulls = createFairLimit(pullsAtOnce);
  const limitStarts = createFairLimit(startsAtOnce);
  const stopped = new AbortController();
  let missing = new Set<string>();
  let runtimeTrouble: DomainError | undefined;
  let checkedAt = 0;
  let sweepTimer: NodeJS.Timeout | undefined;
  let sweeping: Promise<void> | undefined;
  let sweepAgain = false;
  let stopListening = () => {};

  // ---- one sandbox -------------------------------------------------------------------------------------------------

  function wake(id: string): void {
    if (stopped.signal.aborted || !shards.owns(id)) {
      return;
    }
    const work = works.get(id);
    if (work) {
      work.again = true;
      work.nudge();
      return;
    }
    const fresh: Work = {
      abort: new AbortController(),
      again: false,
      nudge: () => {},
      stopping: false,
      done: Promise.resolve(),
    };
    works.set(id, fresh);
    fresh.done = look(id, fresh).finally(() => {
      works.delete(id);
      if (fresh.again) {
        wake(id);
      }
    });
  }

  function wakeLater(id: string, ms: number): void {
    const trial = trialsOf(id);
    clearTimeout(trial.timer);
    trial.timer = setTimeout(() => wake(id), ms);
  }

  function trialsOf(id: string): Trials {
    let trial = trials.get(id);
    if (!trial) {
      trial = { failures: 0 };
      trials.set(id, trial);
    }
    return trial;
  }

  function forget(id: string): void {
    clearTimeout(trials.get(id)?.timer);
    trials.delete(id);
  }

  /** Someone asked for a stop while a long step runs: end the step, and look again. */
  async function interruptIfStopping(id: string): Promise<void> {
    const work = works.get(id);
    if (work && !work.stopping && (await store.get(id))?.state === "stopping") {
      work.again = true;
      work.abort.abort();
    }
  }

  async function look(id: string, work: Work): Promise<void> {
    try {
      while (!work.abort.signal.aborted) {
        work.again = false;
        const sandbox = await store.get(id);
        if (!sandbox || sandbox.cleanedAt) {
          forget(id);
          return;
        }
        work.stopping = sandbox.state === "stopping";
        const settled = await step(sandbox, work);
        if (settled && !work.again) {
          return;
        }
      }
    } catch (error) {
      if (error instanceof Stale) {
        work.again = true;
      } else if (!work.abort.signal.aborted) {
        if (!(error instanceof Later)) {
          logger.error({ err: error, sandboxId: id }, "a step of a sandbox failed and will be tried again");
        }
        const trial = trialsOf(id);
        const delayMs = Math.min(retryDelayMs.first * retryDelayMs.growth ** trial.failures, retryDelayMs.most);
        trial.failures += 1;
        wakeLater(id, delayMs);
      }
    }
  }

  /** Answers true when nothing is left to do until something changes. */
  async function step(sandbox: Sandbox, work: Work): Promise<boolean> {
    switch (sandbox.state) {
      case "provisioning":
        await provision(sandbox, work);
        return false;
      case "ready":
        return watchReady(sandbox);
      case "stopping":
        await finishStop(sandbox);
        return false;
      case "stopped":
      case "failed":
        await clean(sandbox, work.abort.signal);
        return true;
    }
  }

  async function save(sandbox: Sandbox): Promise<Sandbox> {
    if (!(await store.update(sandbox, stageStateEvents(sandbox)))) {
      throw new Stale();
    }
    changes.announce(sandbox.id);
    return sandbox;
  }

  async function saveFailure(
    sandbox: Sandbox,
    failure: { reason: FailureReason; message: string; exitCode?: number },
  ): Promise<void> {
    logger.info({ sandboxId: sandbox.id, reason: failure.reason, cause: failure.message }, "a sandbox failed");
    await save(fail(sandbox, failure, new Date()));
  }

  // ---- provisioning ------------------------------------------------------------------------------------------------

  async function provision(accepted: Sandbox, work: Work): Promise<void> {
    let sandbox = accepted;
    let seen: Observation;
    try {
      sandbox = await pullImage(sandbox, work.abort.signal);
      seen = await limitStarts(sandbox.workspaceId, () => start(sandbox), work.abort.signal);
      delete trialsOf(sandbox.id).engineDownSince;
    } catch (error) {
      await settleTrouble(sandbox, error, work.abort.signal);
      return;
    }
    if (seen.phase === "exited") {
      await saveFailure(sandbox, endOf(seen));
      return;
    }
    // The first probe runs while the start goes to the disk.
    const probing = runtime.probe(sandbox.id, sandbox.image.readinessPort, work.abort.signal);
    probing.catch(() => {});
    if (seen.startedAt && !sandbox.startedAt) {
      const startedAt = seen.startedAt;
      sandbox = await save(recordStarted(sandbox, { createdAt: seen.createdAt, startedAt }, new Date()));
    }
    await awaitReadiness(sandbox, work, probing);
  }

  async function start(sandbox: Sandbox): Promise<Observation> {
    if (runtimeTrouble?.reason === "ISOLATION_UNAVAILABLE") {
      throw runtimeTrouble;
    }
    return runtime.ensure({
      sandboxId: sandbox.id,
      workspaceId: sandbox.workspaceId,
      installationId: o.installationId,
      reference: sandbox.pinnedReference ?? sandbox.image.reference,
      memoryMb: sandbox.image.memoryMb,
      cpus: o.limits.cpus,
      pids: o.limits.pids,
      ...(sandbox.image.ttlSeconds === undefined ? {} : { ttlSeconds: sandbox.image.ttlSeconds }),
    });
  }

  /** Leaves the image on the engine and its pinned reference on the record. */
  async function pullImage(sandbox: Sandbox, signal: AbortSignal): Promise<Sandbox> {
    if (sandbox.pinnedReference) {
      const known = (await runtime.inspect(sandbox.id)) ?? (await runtime.findLocalImage(sandbox.pinnedReference));
      if (known) {
        return sandbox;
      }
    }
    const local = sandbox.image.isDefault ? await runtime.findLocalImage(sandbox.image.reference) : undefined;
    if (local) {
      return save(recordPulled(sandbox, { pinnedReference: local.reference, digest: local.digest }, new Date()));
    }
    const leftMs = Math.max(1, sandbox.createdAt.getTime() + o.limits.pullTimeoutMs - Date.now());
    const timeout = AbortSignal.timeout(leftMs);
    const limit = AbortSignal.any([signal, timeout]);
    const pullInTurn = async () => {
      const authorized = await o.authorizePull(sandbox, limit);
      if (!(await runtime.findLocalImage(authorized.pinnedReference))) {
        await runtime.pull({ ...authorized, signal: limit });
      }
      return authorized;
    };
    const pull = await limitPulls(sandbox.workspaceId, pullInTurn, limit).catch((error: unknown) => {
      if (timeout.aborted && !signal.aborted) {
        return undefined;
      }
      throw error;
    });
    if (!pull) {
      await saveFailure(sandbox, {
        reason: "pull_timeout",
        message: `The image was not pulled within ${o.limits.pullTimeoutMs / 1000} s.`,
      });
      throw new Stale();
    }
    return save(recordPulled(sandbox, pull, new Date()));
  }

  /** Decides whether trouble on the way to a running container is final. */
  async function settleTrouble(sandbox: Sandbox, error: unknown, signal: AbortSignal): Promise<void> {
    if (error instanceof Stale || signal.aborted) {
      throw error;
    }
    const failure = failureOf(error);
    if (failure) {
      await saveFailure(sandbox, failure);
      return;
    }
    const trial = trialsOf(sandbox.id);
    const now = Date.now();
    if (error instanceof DomainError && error.reason === "REGISTRY_UNREACHABLE") {
      trial.registryDownSince ??= now;
      if (now - trial.registryDownSince >= registryRetryMs) {
        await saveFailure(sandbox, { reason: "registry_unreachable", message: error.message });
        return;
      }
      throw new Later();
    }
    trial.engineDownSince ??= now;
    if (now - trial.engineDownSince >= o.limits.pullTimeoutMs) {
      await saveFailure(sandbox, {
        reason: "runtime_unavailable",
        message: "The container engine could not be used for too long.",
      });
      return;
    }
    throw error instanceof DomainError && error.reason === "RUNTIME_UNAVAILABLE" ? new Later() : error;
  }

  async function awaitReadiness(sandbox: Sandbox, work: Work, firstProbe: Promise<boolean>): Promise<void> {
    const signal = work.abort.signal;
    let probing: Promise<boolean> | undefined = firstProbe;
    const startedAt = sandbox.startedAt ?? sandbox.createdAt;
    const deadline = startedAt.getTime() + o.limits.readinessTimeoutMs;
    for (let delayMs = probeDelayMs.first; !signal.aborted; ) {
      // Only one that begins late tells that the time is over: the machine may have slept during this one.
      const isLast = !probing && Date.now() >= deadline;
      const isReady = await (probing ?? runtime.probe(sandbox.id, sandbox.image.readinessPort, signal));
      probing = undefined;
      if (isReady) {
        const ready = await save(becomeReady(sandbox, new Date()));
        o.metrics.readySeconds.observe((Date.now() - sandbox.createdAt.getTime()) / 1000);
        forget(ready.id);
        return;
      }
      const seen = await runtime.inspect(sandbox.id);
      if (seen?.phase === "exited") {
        await saveFailure(sandbox, endOf(seen));
        return;
      }
      if (!seen) {
        await saveFailure(sandbox, { reason: "runtime_lost", message: "The container is gone from the engine." });
        return;
      }
      if (hasExpired(sandbox)) {
        await save(beginStop(sandbox, "ttl_expired", new Date()));
        return;
      }
      if (isLast) {
        const port = sandbox.image.readinessPort;
        await saveFailure(sandbox, {
          reason: "readiness_timeout",
          message: `The container was not ready within ${o.limits.readinessTimeoutMs / 1000} s of its start: ${
            port === undefined ? "it took no exec." : `GET / on port ${port} did not answer 200 to 399.`
          }`,
        });
        return;
      }
      await sleep(delayMs, work);
      delayMs = Math.min(delayMs * probeDelayMs.growth, probeDelayMs.most);
    }
  }

  function sleep(ms: number, work: Work): Promise<void> {
    return new Promise((resolve) => {
      const done = () => {
        clearTimeout(timer);
        work.abort.signal.removeEventListener("abort", done);
        work.nudge = () => {};
        resolve();
      };
      const timer = setTimeout(done, ms);
      work.nudge = done;
      work.abort.signal.addEventListener("abort", done, { once: true });
    });
  }

  // ---- ready, stopping, ended --------------------------------------------------------------------------------------

  function hasExpired(sandbox: Sandbox): boolean {
    return sandbox.expiresAt !== undefined && sandbox.expiresAt.getTime() <= Date.now();
  }

  async function watchReady(sandbox: Sandbox): Promise<boolean> {
    if (hasExpired(sandbox)) {
      await save(beginStop(sandbox, "ttl_expired", new Date()));
      return false;
    }
    const seen = await runtime.inspect(sandbox.id);
    if (seen?.phase === "exited") {
      await saveFailure(sandbox, endOf(seen));
      return false;
    }
    if (!seen) {
      // One look is no evidence; two complete lists are.
      sweepSoon(lostObjectSweepMs);
    }
    trialsOf(sandbox.id).failures = 0;
    if (sandbox.expiresAt) {
      wakeLater(sandbox.id, sandbox.expiresAt.getTime() - Date.now());
    }
    return true;
  }

  async function finishStop(sandbox: Sandbox): Promise<void> {
    // A stop during the pull leaves nothing to stop; a container that ended by itself keeps its own exit code.
    await runtime.stop(sandbox.id, graceSeconds(stopReasonOf(sandbox)));
    const seen = await runtime.inspect(sandbox.id);
    await save(completeStop(sandbox, seen?.exitCode === undefined ? {} : { exitCode: seen.exitCode }, new Date()));
  }

  function stopReasonOf(sandbox: Sandbox): StopReason {
    const reason = sandbox.stateReason;
    return reason === "ttl_expired" || reason === "workspace_deleted" ? reason : "stopped_by_user";
  }

  /** Removes the engine's object once its logs were read to the end; nobody will ask for a deleted workspace's. */
  async function clean(sandbox: Sandbox, signal: AbortSignal): Promise<void> {
    await runtime.stop(sandbox.id, 0);
    if (sandbox.startedAt && sandbox.stateReason !== "workspace_deleted" && (await runtime.inspect(sandbox.id))) {
      if (!(await o.awaitDrained(sandbox.id, signal))) {
        o.metrics.logsLost.inc();
        logger.warn({ sandboxId: sandbox.id }, "a container is removed before its logs were read to the end");
      }
    }
    await runtime.remove(sandbox.id);
    await store.markCleaned(sandbox.id, new Date());
    forget(sandbox.id);
  }

  // ---- all of them -------------------------------------------------------------------------------------------------

  /** Plans the next sweep, one at a time: asked for while one runs, it comes soon after that. */
  function sweepSoon(ms: number): void {
    if (stopped.signal.aborted) {
      return;
    }
    if (sweeping) {
      sweepAgain = true;
      return;
    }
    clearTimeout(sweepTimer);
    sweepTimer = setTimeout(() => {
      sweepAgain = false;
      sweeping = runSweep().then((soon) => {
        sweeping = undefined;
        sweepSoon(soon || sweepAgain ? lostObjectSweepMs : sweepMs);
      });
    }, ms);
  }

  async function runSweep(): Promise<boolean> {
    try {
      return await sweep();
    } catch (error) {
      if (error instanceof DomainError && error.reason === "RUNTIME_UNAVAILABLE") {
        noteTrouble(error);
      } else {
        logger.error({ err: error }, "a sweep of the engine failed and will be tried again");
      }
      return false;
    }
  }

  async function checkRuntime(): Promise<void> {
    try {
      await runtime.check();
      if (runtimeTrouble) {
        logger.info("the container engine can be used again");
      }
      runtimeTrouble = undefined;
      checkedAt = Date.now();
    } catch (error) {
      noteTrouble(
        error instanceof DomainError
          ? error
          : new DomainError("RUNTIME_UNAVAILABLE", "The container engine can't be used.", { cause: error }),
      );
    }
  }

  function noteTrouble(trouble: DomainError): void {
    if (runtimeTrouble?.message !== trouble.message) {
      logger.error({ err: trouble }, "the container engine can't be used");
    }
    runtimeTrouble = trouble;
  }

  /**
   * Compares all records with a complete list of the engine's objects. Answers true when another list is wanted soon.
   * The list is taken first: a record is always written before its object is made.
   */
  async function sweep(): Promise<boolean> {
    if (runtimeTrouble || Date.now() - checkedAt >= checkMs) {
      await checkRuntime();
    }
    const listedAt = new Date();
    const own = (await runtime.list()).filter((seen) => shards.owns(seen.sandboxId));
    const objects = new Map(own.map((seen) => [seen.sandboxId, seen]));
    const total = objects.size;
    const lost = new Set<string>();
    for await (const sandbox of unfinished()) {
      if (!shards.owns(sandbox.id)) {
        continue;
      }
      const seen = objects.get(sandbox.id);
      objects.delete(sandbox.id);
      const ran = isLive(sandbox.state) && sandbox.startedAt !== undefined && sandbox.startedAt < listedAt;
      if (ran && !seen) {
        if (missing.has(sandbox.id)) {
          await saveLost(sandbox);
        } else {
          lost.add(sandbox.id);
        }
      }
      if (sandbox.state !== "ready" || seen?.phase !== "running" || hasExpired(sandbox) || !trials.has(sandbox.id)) {
        wake(sandbox.id);
      }
    }
    missing = lost;
    await removeOrphans([...objects.values()], total);
    return lost.size > 0;
  }

  async function* unfinished(): AsyncGenerator<Sandbox> {
    for (let afterId = ""; ; ) {
      const page = await store.listUnfinished({ limit: 200, afterId });
      yield* page;
      const last = page.at(-1);
      if (!last) {
        return;
      }
      afterId = last.id;
    }
  }

  async function saveLost(sandbox: Sandbox): Promise<void> {
    try {
      await saveFailure(sandbox, { reason: "runtime_lost", message: "The container is gone from the engine." });
    } catch (error) {
      if (!(error instanceof Stale)) {
        throw error;
      }
    }
  }

  /**
   * Objects of this installation that no unfinished record stands for. One whose record has ended and was cleaned goes at
   * once; one with no record after a minute, but not many of them at once: that is what a restored backup looks like.
   */
  async function removeOrphans(objects: readonly Observation[], total: number): Promise<void> {
    const unknown: Observation[] = [];
    for (const seen of objects) {
      const sandbox = await store.get(seen.sandboxId);
      if (sandbox && hasEnded(sandbox.state)) {
        await runtime.remove(seen.sandboxId);
      } else if (!sandbox && Date.now() - seen.createdAt.getTime() >= orphanAgeMs) {
        unknown.push(seen);
      }
    }
    if (unknown.length > 10 && unknown.length > total / 5 && !o.confirmOrphanRemoval) {
      logger.error(
        { unknown: unknown.length, total },
        "many containers of this installation have no record, as after restoring an old backup: none is removed until SANDGATE_CONFIRM_ORPHAN_REMOVAL=true",
      );
      return;
    }
    for (const seen of unknown) {
      logger.warn({ sandboxId: seen.sandboxId }, "a container without a record is removed");
      await runtime.remove(seen.sandboxId);
    }
  }

  async function observeRuntime(): Promise<void> {
    for await (const { sandboxId } of runtime.observe(stopped.signal)) {
      wake(sandboxId);
    }
  }

  return {
    wake,
    trouble: () => runtimeTrouble,
    async start() {
      stopListening = changes.listen((id) => {
        interruptIfStopping(id).catch((error) =>
          logger.error({ err: error, sandboxId: id }, "a changed sandbox could not be read"),
        );
        wake(id);
      });
      shards.onChange(() => sweepSoon(0));
      await checkRuntime();
      observeRuntime().catch((error) => {
        if (!stopped.signal.aborted) {
          logger.error({ err: error }, "watching the container engine ended; sweeps go on");
        }
      });
      sweepSoon(0);
    },
    async stop() {
      stopListening();
      stopped.abort();
      clearTimeout(sweepTimer);
      for (const trial of trials.values()) {
        clearTimeout(trial.timer);
      }
      const running = [...works.values()];
      for (const work of running) {
        work.again = false;
        work.abort.abort();
      }
      await Promise.all([...running.map((work) => work.done), sweeping]);
    },
  };
}

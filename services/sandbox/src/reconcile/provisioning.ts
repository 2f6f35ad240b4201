import { hasReason, messageOf } from "@sandgate/kit/base/domain-error";
import { createFairLimit } from "@sandgate/kit/base/fair-limit";
import { recordPulled, type Sandbox } from "../domain/sandbox.ts";
import type { ImageAccess, ImageStore, PulledImage } from "../runtime/images.ts";
import type { Observation } from "../runtime/lifecycle.ts";
import { type Failure, failureOf } from "./failures.ts";
import { createReadinessWait, type ReadinessOptions } from "./readiness.ts";
import type { RuntimeHealth } from "./runtime-health.ts";
import type { Next, Pass } from "./work-queue.ts";

/** A sandbox whose image is pulled, or is authorized for a runtime that pulls by itself. */
interface Pulled {
  sandbox: Sandbox;
  access?: ImageAccess;
}

export interface ProvisioningOptions extends ReadinessOptions {
  /** Undefined: the runtime has no store of images. */
  images: Pick<ImageStore, "find"> | undefined;
  health: RuntimeHealth;
  /**
   * Makes sure that the image is on the engine, once the registry has given it out to this workspace. Throws a
   * DomainError with a reason that `failureOf` knows.
   */
  pullImage(sandbox: Sandbox, signal: AbortSignal): Promise<PulledImage>;
  /** Finds how a runtime that pulls by itself does it. Throws what `pullImage` throws. */
  findAccess(sandbox: Sandbox): Promise<ImageAccess>;
  limits: ReadinessOptions["limits"] & {
    cpus: number;
    pids: number;
    /** How long a pull may take, and how long an outage of the runtime is waited for. */
    pullTimeoutMs: number;
    /** How long an unreachable registry is retried. Default 30 s. */
    registryRetryMs?: number;
    /** How long isolation rules that can't be set are retried. Default 30 s. */
    isolationRetryMs?: number;
    /** How many sandboxes of a workspace, and of all, are started at once. Default 12 and 16. */
    starts?: { perKey: number; total: number };
    /** How long a sandbox waits to be scheduled, where the runtime schedules. Default 0. */
    schedulingTimeoutMs?: number;
  };
}

/**
 * These limits keep a tenant from delaying the others, since a start may hang in the engine for 30 s and a pull for
 * minutes. A workspace may use most starts while no other wants one; the remaining ones are free for whoever comes.
 */
const pullLimits = { perKey: 4 };
const engineStarts = { perKey: 12, total: 16 };

/**
 * How often a container that is on its way is inspected while no event comes: less often the longer it takes, since
 * inspecting thousands of unscheduled ones would keep a process from handling their events.
 */
const startPollMs = { first: 2_000, longest: 10_000 };

/** Makes the step that takes an accepted sandbox to a ready one: pull, start, and the wait for readiness. */
export function createProvisioning(o: ProvisioningOptions): (sandbox: Sandbox, pass: Pass) => Promise<Next> {
  const { runtime, records, retries, limits } = o;
  const registryRetryMs = limits.registryRetryMs ?? 30_000;
  const isolationRetryMs = limits.isolationRetryMs ?? 30_000;
  const schedulingTimeoutMs = limits.schedulingTimeoutMs ?? 0;
  const startTimeoutMs = schedulingTimeoutMs + limits.pullTimeoutMs;
  const limitPulls = createFairLimit(pullLimits);
  const limitStarts = createFairLimit(limits.starts ?? engineStarts);
  const readiness = createReadinessWait(o);

  /**
   * Makes sure that the image is on the engine, and saves its pinned reference. Undefined: the record changed or
   * failed.
   */
  async function pullImage(sandbox: Sandbox, signal: AbortSignal): Promise<Pulled | undefined> {
    const { pinnedReference } = sandbox;
    if (pinnedReference !== undefined) {
      const known = (await runtime.inspect(sandbox.id)) ?? (await o.images?.find(pinnedReference));
      if (known) return { sandbox };
    }
    const local = sandbox.image.isDefault ? await o.images?.find(sandbox.image.reference) : undefined;
    const image: PulledImage | undefined = local ?? (await pullFromRegistry(sandbox, signal));
    if (!image) {
      await records.saveFailure(sandbox, {
        reason: "pull_timeout",
        message: `The image was not pulled within ${limits.pullTimeoutMs / 1000} s.`,
      });
      return undefined;
    }
    const pulled = recordPulled(sandbox, image, new Date());
    if (!(await records.save(pulled))) return undefined;
    return { sandbox: pulled, ...(image.access && { access: image.access }) };
  }

  /** Undefined: the pull took too long. */
  async function pullFromRegistry(sandbox: Sandbox, signal: AbortSignal): Promise<PulledImage | undefined> {
    const leftMs = Math.max(1, sandbox.createdAt.getTime() + limits.pullTimeoutMs - Date.now());
    const timeout = AbortSignal.timeout(leftMs);
    const either = AbortSignal.any([signal, timeout]);
    try {
      return await limitPulls(sandbox.workspaceId, () => o.pullImage(sandbox, either), either);
    } catch (error) {
      if (timeout.aborted && !signal.aborted) {
        return undefined;
      }
      throw error;
    }
  }

  async function startContainer({ sandbox, access }: Pulled): Promise<Observation> {
    const problem = o.health.problem();
    if (problem?.reason === "ISOLATION_UNAVAILABLE") {
      throw problem;
    }
    const { image } = sandbox;
    const seen = await runtime.ensure({
      sandboxId: sandbox.id,
      workspaceId: sandbox.workspaceId,
      reference: sandbox.pinnedReference ?? image.reference,
      memoryMb: image.memoryMb,
      cpus: limits.cpus,
      pids: limits.pids,
      ...(image.ttlSeconds === undefined ? {} : { ttlSeconds: image.ttlSeconds }),
      ...(image.readinessPort === undefined ? {} : { readinessPort: image.readinessPort }),
      findAccess: async () => access ?? o.findAccess(sandbox),
    });
    retries.markUp(sandbox.id, "runtime");
    retries.markUp(sandbox.id, "isolation");
    return seen;
  }

  /** Decides whether an error on the way to a running container fails the sandbox or is worth another attempt. */
  async function failOrRetry(sandbox: Sandbox, error: unknown): Promise<Next> {
    const failure = failureOf(error) ?? outageFailure(sandbox, error);
    if (failure) {
      await records.saveFailure(sandbox, failure);
      return "again";
    }
    if (
      hasReason(error, "REGISTRY_UNREACHABLE") ||
      hasReason(error, "RUNTIME_UNAVAILABLE") ||
      hasReason(error, "ISOLATION_UNAVAILABLE")
    ) {
      const { retryInMs } = retries.afterFailure(sandbox.id);
      return { retryInMs: Math.max(retryInMs, (error.retryAfterSeconds ?? 0) * 1000) };
    }
    throw error;
  }

  /** The failure of a sandbox whose registry or runtime has been unavailable for too long. */
  function outageFailure({ id }: Sandbox, error: unknown): Failure | undefined {
    if (hasReason(error, "REGISTRY_UNREACHABLE")) {
      // A registry that refuses requests for longer than it would be retried is not waited for.
      const isPaused = (error.retryAfterSeconds ?? 0) * 1000 > registryRetryMs;
      return isPaused || retries.isDownTooLong(id, "registry", registryRetryMs)
        ? { reason: "registry_unreachable", message: error.message }
        : undefined;
    }
    if (hasReason(error, "ISOLATION_UNAVAILABLE")) {
      return retries.isDownTooLong(id, "isolation", isolationRetryMs)
        ? { reason: "isolation_unavailable", message: error.message }
        : undefined;
    }
    return retries.isDownTooLong(id, "runtime", limits.pullTimeoutMs)
      ? { reason: "runtime_unavailable", message: messageOf(error) }
      : undefined;
  }

  /** The next pass over a sandbox whose container is on its way, unless that takes too long. */
  async function awaitStart(sandbox: Sandbox, { problem, createdAt: waitsSince }: Observation): Promise<Next> {
    const { id, createdAt } = sandbox;
    const isUnreachable = problem?.reason === "registry_unreachable";
    const isUnschedulable = problem?.reason === "unschedulable";
    if (!isUnreachable) {
      retries.markUp(id, "registry");
    }
    if (!isUnschedulable) {
      retries.markUp(id, "scheduler");
    }
    const waitedMs = Date.now() - createdAt.getTime();
    // Scheduling and the pull each have their own time.
    const isLate = waitedMs >= startTimeoutMs;
    if (
      isLate ||
      (isUnreachable && retries.isDownTooLong(id, "registry", registryRetryMs)) ||
      (isUnschedulable && retries.isDownTooLong(id, "scheduler", schedulingTimeoutMs, waitsSince.getTime()))
    ) {
      const message = `The container did not run within ${startTimeoutMs / 1000} s.`;
      await records.saveFailure(sandbox, {
        reason: problem?.reason ?? "pull_timeout",
        message: problem?.message ?? message,
      });
      return "again";
    }
    return { retryInMs: Math.min(Math.max(waitedMs / 2, startPollMs.first), startPollMs.longest) };
  }

  return async (accepted, pass) => {
    let sandbox = accepted;
    let seen: Observation;
    try {
      const pulled = await pullImage(accepted, pass.signal);
      if (!pulled) {
        return "again";
      }
      sandbox = pulled.sandbox;
      seen = await limitStarts(sandbox.workspaceId, () => startContainer(pulled), pass.signal);
    } catch (error) {
      return pass.signal.aborted ? "idle" : failOrRetry(sandbox, error);
    }
    if (seen.phase === "created") {
      return awaitStart(sandbox, seen);
    }
    if (seen.phase === "exited") {
      // The start is saved first: a container that has already ended still ran, and may have logged.
      const started = await records.saveStart(sandbox, seen);
      if (started) {
        await records.saveEnd(started, seen);
      }
      return "again";
    }
    o.disk.add(sandbox.id);
    if (seen.isReady && seen.startedAt && !sandbox.startedAt) {
      return readiness.save(sandbox, { createdAt: seen.createdAt, startedAt: seen.startedAt });
    }
    // The first probe runs while the start is saved.
    const firstProbe = runtime.probe(sandbox.id, sandbox.image.readinessPort, pass.signal);
    firstProbe.catch(() => {});
    const started = await records.saveStart(sandbox, seen);
    return started ? readiness.wait(started, pass, firstProbe) : "again";
  };
}

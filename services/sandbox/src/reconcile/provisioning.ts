import { createFairLimit } from "@sandgate/kit/base/fair-limit";
import type { Env } from "../domain/env.ts";
import type { Sandbox } from "../domain/sandbox.ts";
import type { ImageAccess } from "../runtime/images.ts";
import type { Observation } from "../runtime/lifecycle.ts";
import { createImageStep, type ImageStepOptions, type Pulled } from "./image-step.ts";
import { createReadinessWait, type ReadinessOptions } from "./readiness.ts";
import type { RuntimeHealth } from "./runtime-health.ts";
import { type AfterDelay, createStartDelays, type StartLimits } from "./start-delays.ts";
import type { Next, Pass } from "./work-queue.ts";

export interface ProvisioningOptions extends ReadinessOptions, Pick<ImageStepOptions, "images" | "pullImage"> {
  health: RuntimeHealth;
  /** Finds how a runtime that pulls by itself does it. Throws what `pullImage` throws. */
  findAccess(sandbox: Sandbox): Promise<ImageAccess>;
  /** Finds the environment variables of a sandbox that has some. */
  findEnv(sandbox: Sandbox): Promise<Env>;
  limits: ReadinessOptions["limits"] &
    StartLimits & {
      cpus: number;
      pids: number;
      /** How many sandboxes of a workspace, and of all, are started at once. Default 12 and 16. */
      starts?: { perKey: number; total: number };
    };
}

/**
 * These limits keep a tenant from delaying the others, since a start may hang in the engine for 30 s. A workspace may
 * use most starts while no other wants one; the remaining ones are free for whoever comes.
 */
const engineStarts = { perKey: 12, total: 16 };

/** Makes the step that takes an accepted sandbox to a ready one: pull, start, and the wait for readiness. */
export function createProvisioning(o: ProvisioningOptions): (sandbox: Sandbox, pass: Pass) => Promise<Next> {
  const { runtime, records, retries, limits } = o;
  const limitStarts = createFairLimit(limits.starts ?? engineStarts);
  const pullImage = createImageStep(o);
  const delays = createStartDelays(o);
  const readiness = createReadinessWait(o);

  async function startContainer({ sandbox, access }: Pulled): Promise<Observation> {
    const problem = o.health.problem();
    if (problem?.reason === "ISOLATION_UNAVAILABLE") throw problem;
    const { image } = sandbox;
    const seen = await runtime.ensure({
      sandboxId: sandbox.id,
      workspaceId: sandbox.workspaceId,
      reference: sandbox.pinnedReference ?? image.reference,
      memoryMb: image.memoryMb,
      cpus: limits.cpus,
      pids: limits.pids,
      ...(sandbox.command && { command: sandbox.command }),
      ...(sandbox.envNames && { env: { names: sandbox.envNames, find: () => o.findEnv(sandbox) } }),
      ...(image.ttlSeconds === undefined ? {} : { ttlSeconds: image.ttlSeconds }),
      ...(image.readinessPort === undefined ? {} : { readinessPort: image.readinessPort }),
      findAccess: async () => access ?? o.findAccess(sandbox),
    });
    retries.markUp(sandbox.id, "runtime");
    retries.markUp(sandbox.id, "isolation");
    return seen;
  }

  async function failOrRetry(sandbox: Sandbox, after: AfterDelay): Promise<Next> {
    if ("retryInMs" in after) return after;
    await records.saveFailure(sandbox, after.failure);
    return "again";
  }

  return async (accepted, pass) => {
    let sandbox = accepted;
    let seen: Observation;
    try {
      const pulled = await pullImage(accepted, pass.signal);
      if (!pulled) return "again";
      sandbox = pulled.sandbox;
      seen = await limitStarts(sandbox.workspaceId, () => startContainer(pulled), pass.signal);
    } catch (error) {
      return pass.signal.aborted ? "idle" : failOrRetry(sandbox, delays.afterError(sandbox, error));
    }
    const isWaiting = seen.phase === "created" || (seen.phase === "running" && seen.problem !== undefined);
    if (isWaiting) return failOrRetry(sandbox, delays.afterCreated(sandbox, seen));
    if (seen.phase === "exited") {
      // The start is saved first: a container that has already ended still ran, and may have logged.
      const started = await records.saveStart(sandbox, seen);
      if (started) await records.saveEnd(started, seen);
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

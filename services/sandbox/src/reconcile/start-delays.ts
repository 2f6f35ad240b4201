import { hasReason } from "@sandgate/kit/base/domain-error";
import type { Sandbox } from "../domain/sandbox.ts";
import { type Observation, StartFailed } from "../runtime/lifecycle.ts";
import { type Failure, failureOf, toldOf } from "./failures.ts";
import type { Retries } from "./retries.ts";

export interface StartLimits {
  /** How long a pull may take, and how long an outage of the runtime is waited for. */
  pullTimeoutMs: number;
  /** How long an unreachable registry is retried. Default 30 s. */
  registryRetryMs?: number;
  /** How long isolation rules that can't be set are retried. Default 30 s. */
  isolationRetryMs?: number;
  /** How long a start that fails is repeated, for a cause that may pass. Default 30 s. */
  startRetryMs?: number;
  /** How long a sandbox waits to be scheduled, where the runtime schedules. Default 0. */
  schedulingTimeoutMs?: number;
}

/** What follows when a sandbox isn't running yet: it fails, or another attempt is made after a time. */
export type AfterDelay = { failure: Failure } | { retryInMs: number };

export interface StartDelays {
  /** After an error on the way to a running container. Throws one that is neither the sandbox's nor an outage's. */
  afterError(sandbox: Sandbox, error: unknown): AfterDelay;
  /** After the container was seen on its way. */
  afterCreated(sandbox: Sandbox, seen: Observation): AfterDelay;
}

/**
 * How often a container that is on its way is inspected while no event comes: less often the longer it takes, since
 * inspecting thousands of unscheduled ones would keep a process from handling their events.
 */
const startPollMs = { first: 2_000, longest: 10_000 };

/** Decides how long the start of a sandbox may be delayed by its registry, the runtime, its rules and its scheduler. */
export function createStartDelays({ retries, limits }: { retries: Retries; limits: StartLimits }): StartDelays {
  const { pullTimeoutMs, schedulingTimeoutMs = 0 } = limits;
  const { registryRetryMs = 30_000, isolationRetryMs = 30_000, startRetryMs = 30_000 } = limits;
  const startTimeoutMs = schedulingTimeoutMs + pullTimeoutMs;

  /** The failure of a sandbox whose registry or runtime has been unavailable for too long, or whose start fails for as long. */
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
        ? {
            reason: "isolation_unavailable",
            message: "Sandboxes can't be isolated on this host.",
            detail: error.message,
          }
        : undefined;
    }
    if (error instanceof StartFailed) {
      return retries.isDownTooLong(id, "start", startRetryMs) ? error.failure : undefined;
    }
    return retries.isDownTooLong(id, "runtime", pullTimeoutMs)
      ? { reason: "runtime_unavailable", ...toldOf(error) }
      : undefined;
  }

  return {
    afterError(sandbox, error) {
      const failure = failureOf(error) ?? outageFailure(sandbox, error);
      if (failure) return { failure };
      if (
        hasReason(error, "REGISTRY_UNREACHABLE") ||
        hasReason(error, "RUNTIME_UNAVAILABLE") ||
        hasReason(error, "ISOLATION_UNAVAILABLE")
      ) {
        const { retryInMs } = retries.afterFailure(sandbox.id);
        return { retryInMs: Math.max(retryInMs, (error.retryAfterSeconds ?? 0) * 1000) };
      }
      throw error;
    },

    afterCreated({ id, createdAt }, { problem, createdAt: waitsSince }) {
      const isUnreachable = problem?.reason === "registry_unreachable";
      const isUnschedulable = problem?.reason === "unschedulable";
      // Between its attempts a kubelet may say only that it could not pull.
      if (!isUnreachable && problem?.reason !== "image_pull_failed") retries.markUp(id, "registry");
      if (!isUnschedulable) retries.markUp(id, "scheduler");
      // Before there was a container, it was the platform that may have been away.
      const waitedMs = Date.now() - Math.max(createdAt.getTime(), waitsSince.getTime());
      if (
        waitedMs >= startTimeoutMs ||
        // Scheduling and the pull each have their own time.
        (isUnreachable && retries.isDownTooLong(id, "registry", registryRetryMs)) ||
        (isUnschedulable &&
          retries.isDownTooLong(id, "scheduler", schedulingTimeoutMs, Date.now() - waitsSince.getTime()))
      ) {
        const message = `The container did not run within ${startTimeoutMs / 1000} s.`;
        return { failure: problem ?? { reason: "pull_timeout", message } };
      }
      return { retryInMs: Math.min(Math.max(waitedMs / 2, startPollMs.first), startPollMs.longest) };
    },
  };
}

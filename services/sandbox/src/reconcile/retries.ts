import { backoffMs } from "@sandgate/kit/base/backoff";
import { monotonicMs } from "@sandgate/kit/base/time";

type Dependency = "registry" | "runtime" | "isolation" | "start" | "scheduler" | "telemetry";

interface RetryState {
  /** Failed attempts since the last success. */
  failures: number;
  /** When each dependency became unavailable for this sandbox, by the monotonic clock. */
  downSince: Partial<Record<Dependency, number>>;
}

/** The failed attempts of each sandbox. They are kept in memory only, so a restart gives a sandbox more time. */
export interface Retries {
  /** Counts a failed attempt and returns when the next is due. */
  afterFailure(sandboxId: string): { retryInMs: number };
  /**
   * Records that a dependency is unavailable, from now on or for `downForMs` already. True once that has lasted
   * `limitMs`.
   */
  isDownTooLong(sandboxId: string, dependency: Dependency, limitMs: number, downForMs?: number): boolean;
  /** Records that the dependency works again for this sandbox. */
  markUp(sandboxId: string, dependency: Dependency): void;
  forget(sandboxId: string): void;
}

const backoff = { firstMs: 250, lastMs: 5_000 };

export function createRetries(): Retries {
  const states = new Map<string, RetryState>();

  function stateOf(sandboxId: string): RetryState {
    const state = states.get(sandboxId) ?? { failures: 0, downSince: {} };
    states.set(sandboxId, state);
    return state;
  }

  return {
    afterFailure(sandboxId) {
      const state = stateOf(sandboxId);
      state.failures += 1;
      return { retryInMs: backoffMs(state.failures, backoff) };
    },
    isDownTooLong(sandboxId, dependency, limitMs, downForMs = 0) {
      const { downSince } = stateOf(sandboxId);
      const now = monotonicMs();
      const since = downSince[dependency] ?? now - downForMs;
      downSince[dependency] = since;
      return now - since >= limitMs;
    },
    markUp(sandboxId, dependency) {
      delete states.get(sandboxId)?.downSince[dependency];
    },
    forget: (sandboxId) => {
      states.delete(sandboxId);
    },
  };
}

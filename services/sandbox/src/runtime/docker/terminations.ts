import { createFairLimit } from "@sandgate/kit/base/fair-limit";

/** A container as far as its termination goes. */
export interface TerminableContainer {
  /** False when it doesn't run. */
  signal(name: "SIGTERM" | "SIGKILL"): Promise<boolean>;
  /**
   * True once it has exited and the engine has done all that belongs to that; false when that took longer than
   * `timeoutMs`, an integer.
   */
  hasExitedWithin(timeoutMs: number): Promise<boolean>;
}

/** Terminates and removes containers, a few at a time. */
export interface Terminations {
  /** Resolves true when the container has exited by SIGTERM within `graceMs`, or didn't run. */
  terminate(container: TerminableContainer, graceMs: number): Promise<boolean>;
  /** Resolves when the container has exited, or didn't run. Throws when it hasn't exited 30 s after SIGKILL. */
  kill(container: TerminableContainer): Promise<void>;
  /** Removes a container by this call of the engine. */
  remove<T>(call: () => Promise<T>): Promise<T>;
}

/** How long after SIGTERM a container that still runs keeps its slot, at least and at most. */
const shortestHoldMs = 500;
const longestHoldMs = 3_000;
/** Between the two, the hold is this multiple of the last exit's duration. */
const holdFactor = 3;
/** Nothing but the engine keeps a killed container from exiting. */
const killedWithinMs = 30_000;

/**
 * At most `atOnce` containers are terminated or removed at once, in the order of the requests. Each keeps its slot
 * until the engine has released its network. Docker Engine 20.10 counts a network's containers by attempts that fail
 * while another succeeds. When hundreds exit together, each attempt takes longer and the count ends wrong: the network
 * can't be removed, or the engine waits for itself for ever. A container that ignores SIGTERM, or is slow to obey, has
 * no slot during its grace.
 */
export function createTerminations({ atOnce }: { atOnce: number }): Terminations {
  const limit = createFairLimit({ perKey: atOnce });
  let lastExitMs = 0;

  const holdMs = () => Math.min(longestHoldMs, Math.max(shortestHoldMs, Math.ceil(holdFactor * lastExitMs)));

  /** Waits for the exit of a container that was signalled after `sinceMs`. */
  async function awaitExit(container: TerminableContainer, sinceMs: number, timeoutMs: number): Promise<boolean> {
    const hasExited = await container.hasExitedWithin(timeoutMs);
    if (hasExited) lastExitMs = performance.now() - sinceMs;
    return hasExited;
  }

  return {
    async terminate(container, graceMs) {
      let graceEndsMs = 0;
      const hasExited = await limit("", async () => {
        const sinceMs = performance.now();
        if (!(await container.signal("SIGTERM"))) return true;
        graceEndsMs = performance.now() + graceMs;
        return awaitExit(container, sinceMs, Math.min(holdMs(), graceMs));
      });
      const leftMs = Math.ceil(graceEndsMs - performance.now());
      return hasExited || (leftMs > 0 && (await container.hasExitedWithin(leftMs)));
    },
    kill: (container) =>
      limit("", async () => {
        const sinceMs = performance.now();
        if (!(await container.signal("SIGKILL")) || (await awaitExit(container, sinceMs, killedWithinMs))) return;
        throw new Error(`A container had not exited ${killedWithinMs / 1000} s after SIGKILL.`);
      }),
    remove: (call) => limit("", call),
  };
}

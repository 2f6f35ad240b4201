import { createFairLimit } from "@sandgate/kit/base/fair-limit";

/** A container as far as its end goes. */
export interface Ending {
  /** False when it doesn't run. */
  signal(name: "SIGTERM" | "SIGKILL"): Promise<boolean>;
  /** True once it has ended and the engine has done all that belongs to that; false if that isn't so within `timeoutMs`, an integer. */
  hasEndedWithin(timeoutMs: number): Promise<boolean>;
}

/** Ends and removes containers, a few at a time. */
export interface Ends {
  /** Resolves true when it has ended by SIGTERM within `graceMs`, or didn't run. */
  terminate(container: Ending, graceMs: number): Promise<boolean>;
  /** Resolves when it has ended, or didn't run. Throws when it hasn't ended 30 s after SIGKILL. */
  kill(container: Ending): Promise<void>;
  /** Removes a container by this call of the engine. */
  remove<T>(call: () => Promise<T>): Promise<T>;
}

/** How long after SIGTERM a container that still runs keeps its place: at least so long, and at most. */
const shortestHoldMs = 500;
const longestHoldMs = 3_000;
/** And between the two so many times what the last end took. */
const holdFactor = 3;
/** Nothing but the engine keeps a killed one from ending. */
const killedWithinMs = 30_000;

/**
 * At most `atOnce` containers are ended or removed at once, in the order in which that was asked for, each until the engine has
 * released its network. Docker Engine 20.10 counts a network's containers by attempts that fail while another succeeds: of
 * hundreds that end together each attempt takes the longer, the count ends wrong, so that the network can't be removed, and with
 * some luck the engine waits for itself for ever. A container that takes its time to obey, or ignores SIGTERM, keeps no
 * place while its grace lasts.
 */
export function createEnds({ atOnce }: { atOnce: number }): Ends {
  const limit = createFairLimit({ perKey: atOnce });
  let lastEndMs = 0;

  const holdMs = () => Math.min(longestHoldMs, Math.max(shortestHoldMs, Math.ceil(holdFactor * lastEndMs)));

  /** Waits for the end of what was signalled after `sinceMs`. */
  async function awaitEnd(container: Ending, sinceMs: number, timeoutMs: number): Promise<boolean> {
    const hasEnded = await container.hasEndedWithin(timeoutMs);
    if (hasEnded) lastEndMs = performance.now() - sinceMs;
    return hasEnded;
  }

  return {
    async terminate(container, graceMs) {
      let graceEndsMs = 0;
      const hasEnded = await limit("", async () => {
        const sinceMs = performance.now();
        if (!(await container.signal("SIGTERM"))) return true;
        graceEndsMs = performance.now() + graceMs;
        return awaitEnd(container, sinceMs, Math.min(holdMs(), graceMs));
      });
      const leftMs = Math.ceil(graceEndsMs - performance.now());
      return hasEnded || (leftMs > 0 && (await container.hasEndedWithin(leftMs)));
    },
    kill: (container) =>
      limit("", async () => {
        const sinceMs = performance.now();
        if (!(await container.signal("SIGKILL")) || (await awaitEnd(container, sinceMs, killedWithinMs))) return;
        throw new Error(`A container had not ended ${killedWithinMs / 1000} s after SIGKILL.`);
      }),
    remove: (call) => limit("", call),
  };
}

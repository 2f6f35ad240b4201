import type { Logger } from "@sandgate/kit/base/logging";
import { type PeriodicTask, startPeriodicTask } from "@sandgate/kit/base/periodic-task";
import type { SandboxUsed } from "../store/sandboxes.ts";

/**
 * Hears of sandboxes that are used, since one that nobody uses may end. Reading logs and records is no use. Every
 * replica records what it hears, so it doesn't matter which of them hears it.
 */
export interface SandboxUse {
  /** The sandbox was used just now. Cheap, for every call and every message of a connection. */
  touch(sandboxId: string): void;
  /** The sandbox is in use until the returned function is called, which may be repeated. */
  hold(sandboxId: string): () => void;
}

/** How often uses are recorded. */
const recordUsesMs = 3_000;

/** Collects uses, and records the last one of each sandbox every few seconds. */
export interface SandboxUses extends SandboxUse {
  start(): PeriodicTask;
  /** Records what was not recorded yet. */
  flush(): Promise<void>;
}

/** @param o.record stores the uses, unless later ones are known */
export function createSandboxUses(o: {
  record(uses: readonly SandboxUsed[]): Promise<void>;
  logger: Logger;
}): SandboxUses {
  let used = new Map<string, Date>();
  const holders = new Map<string, number>();
  let flushing = Promise.resolve();
  const touch = (sandboxId: string) => {
    used.set(sandboxId, new Date());
  };

  async function flush(): Promise<void> {
    // One that was asked for meanwhile would find nothing, and come back too early.
    flushing = flushing.catch(() => {}).then(flushOnce);
    return flushing;
  }

  async function flushOnce(): Promise<void> {
    for (const sandboxId of holders.keys()) touch(sandboxId);
    if (used.size === 0) return;
    const taken = used;
    used = new Map();
    try {
      await o.record([...taken].map(([sandboxId, at]) => ({ sandboxId, at })));
    } catch (error) {
      used = new Map([...taken, ...used]);
      throw error;
    }
  }

  return {
    touch,
    hold(sandboxId) {
      touch(sandboxId);
      holders.set(sandboxId, (holders.get(sandboxId) ?? 0) + 1);
      let isHeld = true;
      return () => {
        if (!isHeld) return;
        isHeld = false;
        touch(sandboxId);
        const others = (holders.get(sandboxId) ?? 1) - 1;
        if (others > 0) holders.set(sandboxId, others);
        else holders.delete(sandboxId);
      };
    },
    flush,
    start: () =>
      startPeriodicTask({ what: "record uses of sandboxes", everyMs: recordUsesMs, logger: o.logger, work: flush }),
  };
}

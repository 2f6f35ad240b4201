import type { Logger } from "@sandgate/kit/base/logging";
import pLimit from "p-limit";
import { hasEnded } from "../domain/sandbox.ts";
import type { ListedSandbox, RuntimeLifecycle } from "../runtime/lifecycle.ts";
import type { SandboxStore } from "../store/store.ts";

const minAgeMs = 60_000;
/** More containers without a record than this, and than a fifth of all, need an operator's confirmation. */
const maxUnconfirmed = 10;
/** How many are removed at once. */
const concurrency = 8;

/** Removes containers of this installation that no unfinished record accounts for. */
export interface OrphanRemoval {
  /**
   * Removes those that `owns` accepts: one whose record has ended at once, one without a record after a minute. Many
   * without a record are kept, since a restored backup looks like that. It doesn't wait for the removals: one that
   * fails or hangs keeps nothing else, and is begun again by the next call.
   *
   * @param orphans of the whole engine, whoever owns them, so that every replica comes to the same conclusion
   * @param total how many containers the installation has on the engine
   */
  remove(orphans: readonly ListedSandbox[], total: number): Promise<void>;
  /** Why containers without a record are kept, if they are. */
  problem(): string | undefined;
  /** Waits for the removals that were begun. */
  stop(): Promise<void>;
}

export function createOrphanRemoval(o: {
  store: Pick<SandboxStore, "sandboxes">;
  runtime: RuntimeLifecycle;
  owns(sandboxId: string): boolean;
  confirmOrphanRemoval: boolean;
  logger: Logger;
}): OrphanRemoval {
  const { store, runtime, logger } = o;
  const limitRemovals = pLimit(concurrency);
  const removing = new Map<string, Promise<void>>();
  /** Those whose removal has failed and is logged. */
  const stuck = new Set<string>();
  let isStopped = false;
  let problem: string | undefined;

  function remove(sandboxId: string): void {
    if (removing.has(sandboxId)) return;
    const work = limitRemovals(async () => {
      if (!isStopped) await runtime.remove(sandboxId);
    })
      .catch((error: unknown) => {
        if (!stuck.has(sandboxId)) logger.warn({ err: error, sandboxId }, "a container can't be removed; will retry");
        stuck.add(sandboxId);
      })
      .finally(() => removing.delete(sandboxId));
    removing.set(sandboxId, work);
  }

  /** Whether more than `max` of them have no record. */
  async function areMany(unknown: number, others: readonly ListedSandbox[], max: number): Promise<boolean> {
    if (unknown + others.length <= max) return false;
    for (const { sandboxId } of others) {
      if (unknown > max) break;
      if (!(await store.sandboxes.get(sandboxId))) unknown += 1;
    }
    return unknown > max;
  }

  return {
    problem: () => problem,
    async remove(orphans, total) {
      const present = new Set(orphans.map(({ sandboxId }) => sandboxId));
      for (const sandboxId of stuck) if (!present.has(sandboxId)) stuck.delete(sandboxId);
      const { own = [], others = [] } = Object.groupBy(orphans, ({ sandboxId }) =>
        o.owns(sandboxId) ? "own" : "others",
      );
      const unknown: ListedSandbox[] = [];
      for (const seen of own) {
        const sandbox = await store.sandboxes.get(seen.sandboxId);
        if (!sandbox) {
          unknown.push(seen);
        } else if (hasEnded(sandbox.state)) {
          remove(seen.sandboxId);
        }
      }
      const before = problem;
      const max = Math.max(maxUnconfirmed, total / 5);
      problem =
        !o.confirmOrphanRemoval && (await areMany(unknown.length, others, max))
          ? "many containers have no record, as after restoring an old backup: none is removed until SANDGATE_CONFIRM_ORPHAN_REMOVAL=true"
          : undefined;
      if (problem) {
        if (!before) logger.error({ unknown: unknown.length, total }, problem);
        return;
      }
      for (const { sandboxId, createdAt } of unknown) {
        if (Date.now() - createdAt.getTime() < minAgeMs) continue;
        if (!removing.has(sandboxId) && !stuck.has(sandboxId))
          logger.warn({ sandboxId }, "a container without a record is removed");
        remove(sandboxId);
      }
    },
    async stop() {
      isStopped = true;
      await Promise.all(removing.values());
    },
  };
}

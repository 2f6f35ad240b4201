import type { Logger } from "@sandgate/kit/base/logging";
import { hasEnded } from "../domain/sandbox.ts";
import type { SandboxStore } from "../store/store.ts";
import type { ListedSandbox, Runtime } from "./runtime.ts";

const minAgeMs = 60_000;
/** More orphans than this, and than a fifth of all containers, need the operator's word. */
const maxUnconfirmed = 10;

/**
 * Makes what removes orphans: containers of this installation that no unfinished record stands for. One whose record has
 * ended goes at once; one without a record after a minute, but not many of them: that is what a restored backup looks like.
 */
export function createOrphanRemoval(o: {
  store: SandboxStore;
  runtime: Runtime;
  confirmOrphanRemoval: boolean;
  logger: Logger;
}): (orphans: readonly ListedSandbox[], total: number) => Promise<void> {
  const { store, runtime, logger } = o;
  return async (orphans, total) => {
    const unknown: ListedSandbox[] = [];
    for (const seen of orphans) {
      const sandbox = await store.get(seen.sandboxId);
      if (sandbox && hasEnded(sandbox.state)) {
        await runtime.remove(seen.sandboxId);
      } else if (!sandbox && Date.now() - seen.createdAt.getTime() >= minAgeMs) {
        unknown.push(seen);
      }
    }
    if (unknown.length > maxUnconfirmed && unknown.length > total / 5 && !o.confirmOrphanRemoval) {
      logger.error(
        { unknown: unknown.length, total },
        "many containers of this installation have no record, as after restoring an old backup: none is removed until SANDGATE_CONFIRM_ORPHAN_REMOVAL=true",
      );
      return;
    }
    for (const { sandboxId, workspaceId } of unknown) {
      logger.warn({ sandboxId, workspaceId }, "a container without a record is removed");
      await runtime.remove(sandboxId);
    }
  };
}

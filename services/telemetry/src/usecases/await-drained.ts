import type { EventBus } from "@sandgate/kit/events/bus";
import type { ContainerSource } from "../collect/container-source.ts";
import { areLogsStored } from "../domain/batches.ts";
import { listingRepeatMs, requestListing, watchStored } from "../events.ts";
import type { Sources } from "../store/sources.ts";

interface DrainQuestion {
  /** Undefined: only collectors on nodes see containers. */
  containers: ContainerSource | undefined;
  sources: Sources;
  sandboxId: string;
  /** The workspace that the sandbox belongs to. */
  findWorkspace(): Promise<string>;
  signal: AbortSignal;
}

/**
 * Resolves with true once everything that the sandbox's containers wrote is stored, by any replica, or its workspace is
 * deleted; at once when no container has run. Resolves with false when the signal aborts first. Throws when the engine,
 * the store or the workspace can't be read. Without `containers` it takes for granted that a container has run: the
 * logs of all that the store knows must be stored, and it must know one.
 */
export async function awaitDrained(o: DrainQuestion & { bus: EventBus }): Promise<boolean> {
  const { bus, sandboxId, signal } = o;
  const stored = watchStored(bus, sandboxId);
  try {
    const check = await openCheck(o);
    for (let requestedAt = 0; !(await check()); ) {
      if (signal.aborted) return false;
      if (performance.now() - requestedAt >= listingRepeatMs || requestedAt === 0) {
        requestedAt = performance.now();
        requestListing(bus, sandboxId);
      }
      await stored.next(signal);
    }
    return true;
  } finally {
    stored.stop();
  }
}

async function openCheck(o: DrainQuestion): Promise<() => Promise<boolean>> {
  const { containers, sources, sandboxId, signal } = o;
  if (!containers) {
    const workspaceId = await o.findWorkspace();
    return () => isDrained(sources, { sandboxId, workspaceId });
  }
  const listed = await containers.list({ sandboxId, signal });
  const ran = listed.filter(({ state }) => state !== "created");
  if (ran.length === 0) return async () => true;
  const workspaceId = await o.findWorkspace();
  const containerIds = ran.map(({ id }) => id);
  return () => isDrained(sources, { sandboxId, workspaceId, containerIds });
}

/**
 * Whether a sandbox's logs need no more reading: those of these containers, or of all that are known, are stored to
 * their ends, or the workspace is deleted.
 */
export async function isDrained(
  sources: Pick<Sources, "findSandbox" | "isWorkspaceDeleted">,
  o: { sandboxId: string; workspaceId: string; containerIds?: readonly string[] },
): Promise<boolean> {
  const [sandbox, isDeleted] = await Promise.all([
    sources.findSandbox(o.sandboxId),
    sources.isWorkspaceDeleted(o.workspaceId),
  ]);
  return isDeleted || areLogsStored(sandbox, o.containerIds);
}

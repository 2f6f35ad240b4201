import type { Client } from "@connectrpc/connect";
import type { WorkspaceService } from "@sandgate/proto/workspace/v1/workspace";
import type { Logger } from "../base/logging.ts";
import { gauge, type Metrics } from "../base/metrics.ts";
import { type PeriodicTask, startPeriodicTask } from "../base/periodic-task.ts";
import { hourMs } from "../base/time.ts";
import { asService } from "../rpc/context.ts";
import type { PurgeStore } from "./workspace-purges.ts";

const pageSize = 500;
/** How many ids a list shows. */
const maxShown = 1_000;

/**
 * The workspaces that a service stores things of although the workspace service doesn't know them and didn't announce
 * their deletion. That is what a restored backup of the workspace service's database looks like, so nothing is purged
 * but what an operator names.
 */
export interface UnknownWorkspaces {
  /** Looks for them hourly. */
  start(): PeriodicTask;
  /** "ok", or how many there were when they were last looked for. */
  state(): "ok" | string;
  /** Returns how many there are, and the ids of the first thousand. */
  list(): Promise<{ count: number; workspace_ids: string[] }>;
  /** Begins to purge what the service stores of these workspaces. Throws, and purges nothing, if one of them exists. */
  purge(workspaceIds: readonly string[]): Promise<{ purging: readonly string[] }>;
}

export function createUnknownWorkspaces(o: {
  service: string;
  store: Pick<PurgeStore, "beginPurge" | "listWorkspaces">;
  workspaces: Pick<Client<typeof WorkspaceService>, "batchGetWorkspaces">;
  logger: Logger;
  metrics: Metrics;
}): UnknownWorkspaces {
  const { service, store, logger } = o;
  let known = 0;
  gauge(o.metrics, {
    name: "sandgate_unknown_workspaces",
    help: "Workspaces that a service stores things of and the workspace service doesn't know",
    labelNames: ["service"],
    collect() {
      this.set({ service }, known);
    },
  });

  async function findExisting(workspaceIds: readonly string[], signal?: AbortSignal): Promise<Set<string>> {
    const { workspaces } = await o.workspaces.batchGetWorkspaces(
      { workspaceIds: [...workspaceIds] },
      asService(signal && { signal }),
    );
    return new Set(workspaces.map(({ id }) => id));
  }

  async function list(signal?: AbortSignal): Promise<{ count: number; workspace_ids: string[] }> {
    const found = { count: 0, workspace_ids: [] as string[] };
    for (let afterId = ""; ; ) {
      signal?.throwIfAborted();
      const held = await store.listWorkspaces({ limit: pageSize, afterId });
      const last = held.at(-1);
      if (last === undefined) return found;
      afterId = last;
      const existing = await findExisting(held, signal);
      const unknown = held.filter((id) => !existing.has(id));
      found.count += unknown.length;
      found.workspace_ids.push(...unknown.slice(0, maxShown - found.workspace_ids.length));
    }
  }

  return {
    start: () =>
      startPeriodicTask({
        what: "look for workspaces that the workspace service doesn't know",
        everyMs: hourMs,
        logger,
        async work(signal) {
          known = (await list(signal)).count;
          if (known > 0)
            logger.error({ workspaces: known }, "the workspace service doesn't know workspaces that are stored here");
        },
      }),
    state: () => (known > 0 ? `workspaces that the workspace service doesn't know: ${known}` : "ok"),
    list: () => list(),
    async purge(workspaceIds) {
      const existing = await findExisting(workspaceIds);
      if (existing.size > 0) throw new Error(`purged nothing, because these exist: ${[...existing].join(", ")}`);
      for (const workspaceId of workspaceIds) await store.beginPurge(workspaceId, new Date());
      logger.warn({ workspaceIds }, "purging workspaces at an operator's command");
      known = (await list()).count;
      return { purging: workspaceIds };
    },
  };
}

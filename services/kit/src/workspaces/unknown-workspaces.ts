import type { Client } from "@connectrpc/connect";
import type { WorkspaceService } from "@sandgate/proto/workspace/v1/workspace";
import type { Logger } from "../base/logging.ts";
import { gauge, type Metrics } from "../base/metrics.ts";
import { type PeriodicTask, startPeriodicTask } from "../base/periodic-task.ts";
import { hourMs, minuteMs, monotonicMs } from "../base/time.ts";
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
  /**
   * Looks for them hourly, and each minute while there are some. Only those that are unknown twice in a row count, since
   * the event of a deletion may be on its way.
   */
  start(): PeriodicTask;
  /** "ok", or how many there were at the last look. */
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
  /** How soon it looks again when it has found some or has failed; a minute unless set. */
  againMs?: number;
}): UnknownWorkspaces {
  const { service, store, logger, againMs = minuteMs } = o;
  let known = 0;
  /** What the last look found, and when the next one is due. */
  let found: ReadonlySet<string> = new Set();
  let dueAt = 0;
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

  async function findUnknown(signal?: AbortSignal): Promise<string[]> {
    const unknown: string[] = [];
    for (let afterId = ""; ; ) {
      signal?.throwIfAborted();
      const held = await store.listWorkspaces({ limit: pageSize, afterId });
      const last = held.at(-1);
      if (last === undefined) return unknown;
      afterId = last;
      const existing = await findExisting(held, signal);
      unknown.push(...held.filter((id) => !existing.has(id)));
    }
  }

  async function look(signal: AbortSignal): Promise<void> {
    if (found.size === 0 && monotonicMs() < dueAt) return;
    const unknown = await findUnknown(signal);
    const before = known;
    known = unknown.filter((id) => found.has(id)).length;
    found = new Set(unknown);
    dueAt = monotonicMs() + hourMs;
    if (known > 0 && known !== before)
      logger.error({ workspaces: known }, "the workspace service doesn't know workspaces that are stored here");
  }

  return {
    start: () =>
      startPeriodicTask({
        what: "look for workspaces that the workspace service doesn't know",
        everyMs: againMs,
        logger,
        work: look,
      }),
    state: () => (known > 0 ? `workspaces that the workspace service doesn't know: ${known}` : "ok"),
    async list() {
      const unknown = await findUnknown();
      return { count: unknown.length, workspace_ids: unknown.slice(0, maxShown) };
    },
    async purge(workspaceIds) {
      const existing = await findExisting(workspaceIds);
      if (existing.size > 0) throw new Error(`purged nothing, because these exist: ${[...existing].join(", ")}`);
      for (const workspaceId of workspaceIds) await store.beginPurge(workspaceId, new Date());
      logger.warn({ workspaceIds }, "purging workspaces at an operator's command");
      return { purging: workspaceIds };
    },
  };
}

import { randomUUID } from "node:crypto";
import { WorkspaceDeletedSchema } from "@sandgate/proto/workspace/v1/workspace_events";
import type { Logger } from "../base/logging.ts";
import { startPeriodicTask } from "../base/periodic-task.ts";
import { dayMs, hourMs } from "../base/time.ts";
import type { EventBus } from "../events/bus.ts";
import { payloadOf } from "../events/payload.ts";
import { type LeaseStore, runLeased } from "../storage/leases.ts";
import type { StagedEvent } from "../storage/outbox-store.ts";

/** What a service stores about the deletion of workspaces, in its guard of each workspace. */
export interface PurgeStore {
  /** Refuses every later creation in the workspace and opens its purge, again if it was purged before. */
  beginPurge(workspaceId: string, at: Date): Promise<void>;
  listOpenPurges(): Promise<string[]>;
  /** Lists workspaces that are not being purged, by id, after `afterId`. */
  listWorkspaces(page: { limit: number; afterId?: string }): Promise<string[]>;
  /** Records that everything is removed, with the events that announce it. Does nothing unless the purge is open. */
  completePurge(workspaceId: string, at: Date, events: readonly StagedEvent[]): Promise<void>;
  /** Removes up to `limit` guards of workspaces that were purged before this time, and returns how many. */
  deletePurgedBefore(before: Date, limit: number): Promise<number>;
}

/** How a service removes what it stores of a deleted workspace. */
export interface WorkspacePurge {
  store: PurgeStore;
  /** Removes what it can until the signal aborts. Returns true once everything is gone. */
  purge(workspaceId: string, signal: AbortSignal): Promise<boolean>;
  /** Returns the event that announces the purge. */
  workspacePurged(workspaceId: string, at: Date): StagedEvent;
}

const pollMs = 1_000;
/**
 * One replica at a time purges for a service, since several would delete the same rows. Another one goes on after a
 * crash.
 */
const leaseName = "kit.purges";
const leaseMs = 15_000;
/** How long the purge of one workspace runs before the next one gets its turn. */
const turnMs = 2_000;
/**
 * How long the guard of a purged workspace is kept. Nothing of the workspace can arrive later: a call lasts minutes,
 * and an event comes again within 7 days.
 */
const purgedKeptMs = 30 * dayMs;
const deleteBatchSize = 200;

/**
 * Purges what a service stores of deleted workspaces, on `workspace.deleted`. Open purges are stored, so they go on
 * after a restart, in one replica at a time. `purge` removes what it can and returns true once everything is gone; the
 * event of `workspacePurged` then announces it. The time is the event's version. When the workspace's deletion is
 * announced again, its purge runs and is announced again.
 */
export async function startWorkspacePurges(
  o: WorkspacePurge & {
    service: string;
    leases: LeaseStore;
    bus: EventBus;
    logger: Logger;
  },
): Promise<{ stop(): Promise<void> }> {
  const { store, leases, logger } = o;

  const holder = randomUUID();

  async function purgeAll(workspaceIds: readonly string[], signal: AbortSignal): Promise<void> {
    for (const workspaceId of workspaceIds) {
      if (signal.aborted) return;
      try {
        if (await o.purge(workspaceId, AbortSignal.any([signal, AbortSignal.timeout(turnMs)]))) {
          const at = new Date();
          await store.completePurge(workspaceId, at, [o.workspacePurged(workspaceId, at)]);
          logger.info({ workspaceId }, "purged a deleted workspace");
        }
      } catch (error) {
        // A purge that fails must not hold up the others.
        if (!signal.aborted)
          logger.error({ err: error, workspaceId }, "failed to purge a deleted workspace; will retry");
      }
    }
  }

  const purges = startPeriodicTask({
    what: "purge deleted workspaces",
    everyMs: pollMs,
    logger,
    async work(signal) {
      if ((await store.listOpenPurges()).length === 0) return;
      await runLeased({ leases, name: leaseName, holder, ttlMs: leaseMs, signal, logger }, async (leased) =>
        // Listed again, since another replica may have completed some meanwhile.
        purgeAll(await store.listOpenPurges(), leased),
      );
    },
  });

  const forgetting = startPeriodicTask({
    what: "forget purged workspaces",
    everyMs: hourMs,
    logger,
    async work(signal) {
      const before = new Date(Date.now() - purgedKeptMs);
      while (!signal.aborted && (await store.deletePurgedBefore(before, deleteBatchSize)) === deleteBatchSize);
    },
  });

  const consumption = await o.bus.consume({
    consumer: `${o.service}-purges`,
    subjects: ["sandgate.workspace.workspace.deleted.v1"],
    async handle(event) {
      await store.beginPurge(payloadOf(event, WorkspaceDeletedSchema).workspaceId, new Date());
    },
  });

  return {
    async stop() {
      await Promise.all([consumption.stop(), purges.stop(), forgetting.stop()]);
    },
  };
}

import { randomUUID } from "node:crypto";
import { anyUnpack } from "@bufbuild/protobuf/wkt";
import type { Client } from "@connectrpc/connect";
import type { WorkspaceService } from "@sandgate/proto/workspace/v1/workspace";
import { WorkspaceDeletedSchema } from "@sandgate/proto/workspace/v1/workspace_events";
import type { Logger } from "../base/logging.ts";
import { startPeriodicTask } from "../base/periodic-task.ts";
import type { EventBus } from "../events/bus.ts";
import { asService } from "../rpc/context.ts";
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
const sweepMs = 3_600_000;
const sweepPage = 500;

/**
 * Purges what a service stores of deleted workspaces: on `workspace.deleted`, and hourly for workspaces that are gone
 * although no event said so. Open purges are stored, so they go on after a restart, in one replica at a time. `purge`
 * removes what it can and returns true once everything is gone; the event of `workspacePurged` then announces it. The
 * time is the event's version. When the workspace's deletion is announced again, its purge runs and is announced again.
 */
export async function startWorkspacePurges(
  o: WorkspacePurge & {
    service: string;
    leases: LeaseStore;
    bus: EventBus;
    workspaces: Client<typeof WorkspaceService>;
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

  const sweep = startPeriodicTask({
    what: "look for workspaces that are gone",
    everyMs: sweepMs,
    logger,
    async work(signal) {
      for (let afterId = ""; !signal.aborted; ) {
        const workspaceIds = await store.listWorkspaces({ limit: sweepPage, afterId });
        const last = workspaceIds.at(-1);
        if (last === undefined) return;
        afterId = last;
        const { workspaces } = await o.workspaces.batchGetWorkspaces({ workspaceIds }, asService({ signal }));
        const existing = new Set(workspaces.map((workspace) => workspace.id));
        const gone = workspaceIds.filter((workspaceId) => !existing.has(workspaceId));
        if (gone.length > 10 && gone.length > workspaceIds.length / 5) {
          logger.error(
            { gone: gone.length },
            "many workspaces are gone at once, as if an old backup was restored, so none is purged",
          );
          return;
        }
        for (const workspaceId of gone) await store.beginPurge(workspaceId, new Date());
      }
    },
  });

  const consumption = await o.bus.consume({
    consumer: `${o.service}-purges`,
    subjects: ["sandgate.workspace.workspace.deleted.v1"],
    async handle(event) {
      const deleted = event.payload && anyUnpack(event.payload, WorkspaceDeletedSchema);
      if (!deleted) throw new Error(`event ${event.eventId} isn't a WorkspaceDeleted`);
      await store.beginPurge(deleted.workspaceId, new Date());
    },
  });

  return {
    async stop() {
      await Promise.all([consumption.stop(), purges.stop(), sweep.stop()]);
    },
  };
}

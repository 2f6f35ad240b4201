import type { Logger } from "@sandgate/kit/base/logging";
import { gauge, type Metrics } from "@sandgate/kit/base/metrics";
import { type PeriodicTask, startPeriodicTask } from "@sandgate/kit/base/periodic-task";
import { dayMs, hourMs } from "@sandgate/kit/base/time";
import type { EventBus } from "@sandgate/kit/events/bus";
import type { EventCause } from "@sandgate/kit/events/outbox";
import type { Stale } from "@sandgate/kit/storage/optimistic";
import { nextAnnouncement, purgingServices } from "../domain/deletions.ts";
import { versionOf, type WorkspaceRecord } from "../domain/workspaces.ts";
import { signalMembership, workspaceDeleted } from "../events.ts";
import type { WorkspaceStore } from "../store/store.ts";

/** How often the service looks for due deletions; well below the first delay. */
const pollMs = 10_000;
/** Deletions in one batch. */
const batchSize = 100;
/**
 * How long complete deletions and deleted accounts are kept. No session lasts longer, an event comes again within 7
 * days, and a call lasts minutes, so nothing of the workspace or the user can arrive later.
 */
const keptMs = 30 * dayMs;

/**
 * Deletes a workspace with all its members and announces it.
 *
 * @param cause a call, or the deletion of an account
 */
export async function deleteWorkspace(
  { store, bus }: { store: WorkspaceStore; bus: EventBus },
  workspace: WorkspaceRecord,
  cause: EventCause,
): Promise<"done" | Stale> {
  const read = versionOf(workspace);
  const deletedAt = new Date();
  const events = [workspaceDeleted(cause, read, deletedAt)];
  const outcome = await store.workspaces.delete(
    { ...read, events },
    { services: purgingServices, deletedAt, announceAgainAt: nextAnnouncement(1, deletedAt) },
  );
  if (outcome === "done") signalMembership(bus, workspace.id);
  return outcome;
}

/** Announces the open deletions that are due, each under a new event id and a higher version. */
export async function announceDueDeletions(store: WorkspaceStore, now: Date): Promise<void> {
  for (const deletion of await store.deletions.listDue(now, batchSize)) {
    const { workspaceId, version, deletedAt, announcements } = deletion;
    const events = [workspaceDeleted(undefined, deletion, deletedAt)];
    // `stale` means that another replica was first.
    await store.deletions.announce({ workspaceId, version, events }, nextAnnouncement(announcements + 1, now));
  }
}

/** Forgets deletions that have long been complete, and users whose accounts were deleted long ago. */
export function startForgetting({ store, logger }: { store: WorkspaceStore; logger: Logger }): PeriodicTask {
  return startPeriodicTask({
    what: "forget deleted workspaces and accounts",
    everyMs: hourMs,
    logger,
    async work(signal) {
      const before = new Date(Date.now() - keptMs);
      while (!signal.aborted && (await store.deletions.deleteCompletedBefore(before, batchSize)) === batchSize);
      while (!signal.aborted && (await store.accounts.forgetDeletedBefore(before, batchSize)) === batchSize);
    },
  });
}

/** Announces open deletions when they are due, and exports the age of the oldest. */
export function startAnnouncements(o: { store: WorkspaceStore; logger: Logger; metrics: Metrics }): PeriodicTask {
  const { store, logger, metrics } = o;
  gauge(metrics, {
    name: "sandgate_workspace_oldest_open_deletion_age_seconds",
    help: "Seconds since the oldest workspace deletion that a service has not purged yet; 0 when there is none.",
    async collect() {
      const oldest = await store.deletions.findOldestOpen();
      this.set(oldest === undefined ? 0 : (Date.now() - oldest.getTime()) / 1000);
    },
  });
  return startPeriodicTask({
    what: "announce open deletions",
    everyMs: pollMs,
    logger,
    work: () => announceDueDeletions(store, new Date()),
  });
}

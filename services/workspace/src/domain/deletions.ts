import { backoffMs } from "@sandgate/kit/base/backoff";
import type { Logger } from "@sandgate/kit/base/logging";
import { gauge, type Metrics } from "@sandgate/kit/base/metrics";
import { type PeriodicTask, startPeriodicTask } from "@sandgate/kit/base/periodic-task";
import { addMs } from "@sandgate/kit/base/time";
import type { EventBus } from "@sandgate/kit/events/bus";
import type { EventCause } from "@sandgate/kit/events/outbox";
import type { Stale } from "@sandgate/kit/storage/optimistic";
import { signalMembership, workspaceDeleted } from "../events.ts";
import type { WorkspaceRecord, WorkspaceStore } from "../store/store.ts";

/** The services that hold data of a workspace and answer its deletion with `workspace_purged`. */
const purgingServices = ["image-registry", "sandbox", "telemetry"];

/** Between the announcements of a deletion that is still open. */
const announcementBackoff = { firstMs: 60_000, lastMs: 3_600_000 };
/** How often due deletions are looked for; well below the first delay. */
const pollMs = 10_000;
/** Deletions that are read at once. */
const batchSize = 100;

/**
 * When a deletion that is still open is announced again.
 *
 * @param announcements how often it has been announced so far
 */
export function nextAnnouncement(announcements: number, now: Date, random?: () => number): Date {
  return addMs(now, backoffMs(announcements, announcementBackoff, random));
}

/**
 * Deletes a workspace with all its members and announces it.
 *
 * @param call what deletes it: a call, or the deletion of an account
 */
export async function deleteWorkspace(
  { store, bus }: { store: WorkspaceStore; bus: EventBus },
  workspace: WorkspaceRecord,
  call: EventCause,
): Promise<"done" | Stale> {
  const { id, version } = workspace;
  const now = new Date();
  const events = [workspaceDeleted(call, id, version + 1, now)];
  const outcome = await store.deleteWorkspace(id, version, purgingServices, now, nextAnnouncement(1, now), events);
  if (outcome === "done") signalMembership(bus, id);
  return outcome;
}

/** Announces the open deletions that are due, each under a new event id and a higher version. */
export async function announceDueDeletions(store: WorkspaceStore, now: Date): Promise<void> {
  for (const { workspaceId, deletedAt, announcements, version } of await store.listDueDeletions(now, batchSize)) {
    const events = [workspaceDeleted(undefined, workspaceId, version + 1, deletedAt)];
    // `stale` means that another replica was first.
    await store.announceDeletion(workspaceId, version, nextAnnouncement(announcements + 1, now), events);
  }
}

/** Announces open deletions when they are due, and exports the age of the oldest. */
export function startAnnouncements(o: { store: WorkspaceStore; logger: Logger; metrics: Metrics }): PeriodicTask {
  const { store, logger, metrics } = o;
  gauge(metrics, {
    name: "sandgate_workspace_oldest_open_deletion_age_seconds",
    help: "Seconds since the oldest workspace deletion that a service has not purged yet; 0 when there is none.",
    async collect() {
      const oldest = await store.oldestOpenDeletion();
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

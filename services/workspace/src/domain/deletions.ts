import { backoffMs } from "@sandgate/kit/base/backoff";
import { addMs } from "@sandgate/kit/base/time";
import type { WorkspaceVersion } from "./workspaces.ts";

/** The services that hold data of a workspace and answer its deletion with `workspace_purged`. */
export const purgingServices: readonly string[] = ["image-registry", "sandbox", "telemetry"];

/** A deletion that a service has still to purge. */
export interface DeletionRecord extends WorkspaceVersion {
  readonly deletedAt: Date;
  /** How often `workspace.deleted` has been announced; the version grows with each. */
  readonly announcements: number;
}

/** Between the announcements of a deletion that is still open. */
const announcementBackoff = { firstMs: 60_000, lastMs: 3_600_000 };

/**
 * When a deletion that is still open is announced again.
 *
 * @param announcements how often it has been announced so far
 */
export function nextAnnouncement(announcements: number, now: Date, random?: () => number): Date {
  return addMs(now, backoffMs(announcements, announcementBackoff, random));
}

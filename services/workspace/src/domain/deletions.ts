import { backoffMs } from "@sandgate/kit/base/backoff";
import { addMs } from "@sandgate/kit/base/time";
import type { WorkspaceVersion } from "./workspaces.ts";

/** The services that hold data of a workspace and answer its deletion with `workspace_purged`. */
export const purgingServices: readonly string[] = ["image-registry", "sandbox", "telemetry"];

/** A deletion that at least one service has yet to purge. */
export interface DeletionRecord extends WorkspaceVersion {
  readonly deletedAt: Date;
  /** How often `workspace.deleted` has been announced; the version grows with each. */
  readonly announcements: number;
}

/** The delay between two announcements of an open deletion. */
const announcementBackoff = { firstMs: 60_000, lastMs: 3_600_000 };

/**
 * Returns when an open deletion is announced next.
 *
 * @param announcements how often it has been announced so far
 */
export function nextAnnouncement(announcements: number, now: Date, random?: () => number): Date {
  return addMs(now, backoffMs(announcements, announcementBackoff, random));
}

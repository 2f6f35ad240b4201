import type { StagedEvent } from "@sandgate/kit/events/outbox";
import type { IdempotencyRecord } from "@sandgate/kit/storage/idempotency-record";
import type { Preview, PreviewLink } from "../domain/previews.ts";

/** The previews of sandboxes that have not ended. What has expired goes with the next that is made, or the sandbox. */
export interface Previews {
  /**
   * Stores a preview of a sandbox that is ready. False when it is so no longer.
   * @throws what `checkPreviewCount` throws
   */
  create(
    preview: Preview,
    o: { events: readonly StagedEvent[]; record?: IdempotencyRecord | undefined },
  ): Promise<boolean>;
  get(id: string): Promise<Preview | undefined>;
  findByLabel(label: string): Promise<Preview | undefined>;
  /** A sandbox's, in the order of their creation, expired ones too. */
  list(sandboxId: string): Promise<Preview[]>;
  /** False: there was none. */
  delete(id: string, events: readonly StagedEvent[]): Promise<boolean>;
  /** Deletes those that a user had made by then, in one workspace or in all (undefined); returns how many. */
  deleteOfUser(workspaceId: string | undefined, userId: string, by: Date): Promise<number>;
  /**
   * Stores a link. False when its preview is there no longer.
   * @throws what `checkLinkCount` throws
   */
  createLink(link: PreviewLink, o: { now: Date; events: readonly StagedEvent[] }): Promise<boolean>;
  /** Removes a link, and returns it to the one call that found it. */
  takeLink(hash: Uint8Array): Promise<PreviewLink | undefined>;
}

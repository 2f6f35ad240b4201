import type { Cursor } from "@sandgate/kit/base/page";
import type { StagedEvent } from "@sandgate/kit/events/outbox";
import type { IdempotencyRecord } from "@sandgate/kit/storage/idempotency-record";
import type { Stale } from "@sandgate/kit/storage/optimistic";
import type { ImageRecord, ImageView } from "../domain/images.ts";
import type { Quotas } from "../domain/quotas.ts";
import type { RegistryVersion } from "../domain/registries.ts";

export interface ImageFilter {
  readonly workspaceId: string;
  readonly enabledOnly: boolean;
}

/**
 * A change commits only on the version of the image that it was decided on, and with the version of the registry
 * credential that the image was checked against; otherwise it is stale. Creates in a workspace take turns with each
 * other and with its deletion.
 */
export interface Images {
  /** One of the workspace's own or a global default. */
  find(imageId: string, workspaceId: string): Promise<ImageView | undefined>;
  /**
   * The workspace's own of this name, and if there is none the global defaults, as for no workspace (""); two of them at
   * most. With `tag` only those of that tag count.
   */
  findByName(name: string, workspaceId: string, tag?: string): Promise<ImageView[]>;
  /** Newest first. */
  list(filter: ImageFilter, after: Cursor | undefined, limit: number): Promise<ImageView[]>;
  /** How many images `list` would list on all its pages. */
  count(filter: ImageFilter): Promise<number>;

  /** Global defaults count towards no quota. */
  create(
    image: ImageRecord,
    registry: RegistryVersion | undefined,
    quotas: Quotas,
    events: readonly StagedEvent[],
    record: IdempotencyRecord | undefined,
  ): Promise<"done" | Stale | "workspace_deleted" | "too_many">;
  /** Creates the global default image of the first start; later calls create none, whatever the image. */
  createDefault(image: ImageRecord, events: readonly StagedEvent[]): Promise<void>;
  /** @param image what it becomes, with the version that was read */
  update(
    image: ImageRecord,
    registry: RegistryVersion | undefined,
    events: readonly StagedEvent[],
  ): Promise<"done" | Stale>;
  delete(imageId: string, version: number, events: readonly StagedEvent[]): Promise<"done" | Stale>;
}

import type { Cursor } from "@sandgate/kit/base/page";
import type { StagedEvent } from "@sandgate/kit/events/outbox";
import type { IdempotencyRecord } from "@sandgate/kit/storage/idempotency-record";
import type { ServiceStore } from "@sandgate/kit/storage/open-store";
import type { Stale } from "@sandgate/kit/storage/optimistic";
import type { PurgeStore } from "@sandgate/kit/workspaces/workspace-purges";
import type { Caps } from "../domain/caps.ts";

export interface ImageRecord {
  readonly id: string;
  /** Empty: a global default, which every workspace sees. */
  readonly workspaceId: string;
  readonly name: string;
  /** The reference as it was given. */
  readonly image: string;
  readonly description: string | undefined;
  readonly tag: string;
  readonly enabled: boolean;
  readonly memoryMb: number;
  readonly readinessPort: number | undefined;
  readonly ttlSeconds: number | undefined;
  readonly registryId: string | undefined;
  readonly createdAt: Date;
  readonly updatedAt: Date;
  /** Grows with every change. */
  readonly version: number;
}

export interface ImageView extends ImageRecord {
  readonly registryName: string | undefined;
}

export interface RegistryRecord {
  readonly id: string;
  readonly workspaceId: string;
  readonly name: string;
  readonly url: string;
  /** The host[:port] that its images name. */
  readonly host: string;
  readonly username: string;
  readonly sealedPassword: Uint8Array;
  readonly createdAt: Date;
  readonly updatedAt: Date;
  /** Grows with every change, and so tells one credential from the next. */
  readonly version: number;
}

/** A registry as it was when an image was checked against it. */
export interface RegistryVersion {
  readonly id: string;
  readonly version: number;
}

/** A layer whose bytes were downloaded from a registry and have its digest. */
export interface VerifiedLayer {
  readonly digest: string;
  /** The digest of its unpacked content. */
  readonly diffId: string;
}

export interface ImageFilter {
  readonly workspaceId: string;
  readonly enabledOnly: boolean;
}

type Outcome = "done" | Stale;
type WorkspaceDeleted = "workspace_deleted";

/**
 * Images, registries and the purge of deleted workspaces. A change of a record names the version that it was decided on and
 * commits only on that one. Creates in a workspace commit only while its guard row doesn't say that it is deleted; they
 * take turns on that row and count what the workspace has, so that they stay within its caps.
 */
export interface ImageRegistryStore extends ServiceStore, PurgeStore {
  /** One of the workspace's own or a global default. */
  findImage(imageId: string, workspaceId: string): Promise<ImageView | undefined>;
  /** Newest first. */
  listImages(filter: ImageFilter, after: Cursor | undefined, limit: number): Promise<ImageView[]>;
  /** How many images `listImages` would list on all its pages. */
  countImages(filter: ImageFilter): Promise<number>;
  /** Undefined for another workspace's. */
  findRegistry(registryId: string, workspaceId: string): Promise<RegistryRecord | undefined>;
  /** Newest first. */
  listRegistries(workspaceId: string, after: Cursor | undefined, limit: number): Promise<RegistryRecord[]>;

  /** Global defaults are not capped. */
  createImage(
    image: ImageRecord,
    registry: RegistryVersion | undefined,
    caps: Caps,
    events: readonly StagedEvent[],
    record: IdempotencyRecord | undefined,
  ): Promise<Outcome | WorkspaceDeleted | "too_many">;
  /** Creates the global default image of the first start; later calls change nothing, whatever the image. */
  createDefaultImage(image: ImageRecord, events: readonly StagedEvent[]): Promise<void>;
  /** @param image what it becomes, with the version that was read */
  updateImage(
    image: ImageRecord,
    registry: RegistryVersion | undefined,
    events: readonly StagedEvent[],
  ): Promise<Outcome>;
  deleteImage(imageId: string, version: number, events: readonly StagedEvent[]): Promise<Outcome>;

  createRegistry(
    registry: RegistryRecord,
    caps: Caps,
    events: readonly StagedEvent[],
    record: IdempotencyRecord | undefined,
  ): Promise<"done" | "name_taken" | WorkspaceDeleted | "too_many">;
  /** @param registry what it becomes, with the version that was read; its host can't change while images use it */
  updateRegistry(registry: RegistryRecord, events: readonly StagedEvent[]): Promise<Outcome | "name_taken" | "in_use">;
  /** `in_use`: an image uses it. */
  deleteRegistry(registryId: string, version: number, events: readonly StagedEvent[]): Promise<Outcome | "in_use">;

  /** Which of these layers were verified at this registry. */
  findVerifiedLayers(host: string, digests: readonly string[]): Promise<VerifiedLayer[]>;
  /** Stores layers that were verified at this registry; those that are there already are verified anew. */
  putVerifiedLayers(host: string, layers: readonly VerifiedLayer[], at: Date): Promise<void>;
  /** When the newest layer was verified that has so many newer ones; undefined: there aren't as many. */
  findVerifiedBeyond(count: number): Promise<Date | undefined>;
  /** Forgets up to `limit` layers that were verified before this, and returns how many. */
  deleteVerifiedBefore(before: Date, limit: number): Promise<number>;

  /** Removes up to `limit` of each of the workspace's images and registries; true when none is left. */
  purgeBatch(workspaceId: string, limit: number): Promise<boolean>;
}

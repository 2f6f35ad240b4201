import type { StagedEvent } from "@sandgate/kit/events/outbox";
import type { IdempotencyRecord } from "@sandgate/kit/storage/idempotency-record";
import type { ServiceStore } from "@sandgate/kit/storage/open-store";
import type { PurgeStore } from "@sandgate/kit/workspaces/workspace-purges";
import type { Sandbox, SandboxState } from "../domain/sandbox.ts";

/** What a workspace may hold at once. 0 means no limit. */
export interface Quota {
  maxSandboxes: number;
  maxMemoryMb: number;
}

export interface SandboxFilter {
  /** Empty: every state. */
  states: readonly SandboxState[];
  /** Those that have all of these. */
  labels: Readonly<Record<string, string>>;
}

/** A place in a list that is ordered by (createdAt, id), newest first. */
export interface ListPosition {
  createdAt: Date;
  id: string;
}

/** Where sandboxes are kept. A method is a transaction; each write stores the events it causes with it. */
export interface SandboxStore extends ServiceStore, PurgeStore {
  /** This installation's id, made at the first call ever. */
  installationId(): Promise<string>;

  /**
   * Stores an accepted sandbox within its workspace's quota.
   * @throws DomainError SANDBOX_NAME_CONFLICT, PROVISIONING_FAILED (quota), WORKSPACE_FORBIDDEN (the workspace was deleted)
   */
  create(
    sandbox: Sandbox,
    quota: Quota,
    events: readonly StagedEvent[],
    record: IdempotencyRecord | undefined,
  ): Promise<void>;
  /** Replaces the record if its version is still one below `sandbox`'s. False: someone else was faster. */
  update(sandbox: Sandbox, events: readonly StagedEvent[]): Promise<boolean>;
  /** Notes that the engine holds nothing of it any more. Only for ended sandboxes; not a change of version. */
  markCleaned(id: string, at: Date): Promise<void>;

  get(id: string): Promise<Sandbox | undefined>;
  /** By id, or by name: the live one of that name, else the newest ended one. */
  find(workspaceId: string, idOrName: string): Promise<Sandbox | undefined>;
  list(workspaceId: string, filter: SandboxFilter, page: { limit: number; after?: ListPosition }): Promise<Sandbox[]>;
  /** The reconciler's work: not ended, or ended and not cleaned, by id. */
  listUnfinished(page: { limit: number; afterId?: string }): Promise<Sandbox[]>;
  countByState(): Promise<Partial<Record<SandboxState, number>>>;

  /** A slice of a workspace's sandboxes that are not cleaned yet. */
  listUncleaned(workspaceId: string, limit: number): Promise<Sandbox[]>;
  /** Deletes a slice of a workspace's cleaned records; answers how many. */
  deleteCleaned(workspaceId: string, limit: number): Promise<number>;

  /** Deletes a slice of the cleaned records that ended before `before`; answers how many. */
  deleteEndedBefore(before: Date, limit: number): Promise<number>;
}

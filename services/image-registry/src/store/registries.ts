import type { Cursor } from "@sandgate/kit/base/page";
import type { StagedEvent } from "@sandgate/kit/events/outbox";
import type { IdempotencyRecord } from "@sandgate/kit/storage/idempotency-record";
import type { Stale } from "@sandgate/kit/storage/optimistic";
import type { Quotas } from "../domain/quotas.ts";
import type { RegistryRecord } from "../domain/registries.ts";

/** Registry credentials. A change names the version that it was decided on and commits only on that one. */
export interface Registries {
  /** Undefined for another workspace's. */
  find(registryId: string, workspaceId: string): Promise<RegistryRecord | undefined>;
  /** Newest first. */
  list(workspaceId: string, after: Cursor | undefined, limit: number): Promise<RegistryRecord[]>;

  create(
    registry: RegistryRecord,
    quotas: Quotas,
    events: readonly StagedEvent[],
    record: IdempotencyRecord | undefined,
  ): Promise<"done" | "workspace_deleted" | "name_taken" | "too_many">;
  /** @param registry what it becomes, with the version that was read */
  update(registry: RegistryRecord, events: readonly StagedEvent[]): Promise<"done" | Stale | "name_taken" | "in_use">;
  /** `in_use`: an image uses it. */
  delete(registryId: string, version: number, events: readonly StagedEvent[]): Promise<"done" | Stale | "in_use">;
}

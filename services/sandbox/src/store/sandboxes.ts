import type { StagedEvent } from "@sandgate/kit/events/outbox";
import type { IdempotencyRecord } from "@sandgate/kit/storage/idempotency-record";
import type { QuotaOwner, Quotas } from "../domain/quota.ts";
import type { PullProgress, Sandbox, SandboxState } from "../domain/sandbox.ts";

export interface SandboxFilter {
  /** Empty: every state. */
  states: readonly SandboxState[];
  /** Only sandboxes that have all of these. */
  labels: Readonly<Record<string, string>>;
  /** Only sandboxes whose names begin so. */
  namePrefix?: string | undefined;
}

/** Which sandboxes of the whole installation. */
export interface InstallationFilter {
  /** Empty: every state. */
  states: readonly SandboxState[];
  workspaceId: string | undefined;
  /** The user who provisioned them. */
  createdBy: string | undefined;
}

/** A position in a list that is ordered by (createdAt, id), newest first. */
export interface ListPosition {
  createdAt: Date;
  id: string;
}

/** What a sandbox is created with. */
export interface CreateOptions {
  /** Of the workspace, as far as the caller knows. A later one that is stored holds. */
  quotaOwner?: QuotaOwner | undefined;
  quotas: Quotas;
  events: readonly StagedEvent[];
  record?: IdempotencyRecord | undefined;
  /** Its environment variables, which are stored until it has ended. */
  sealedEnv?: Uint8Array | undefined;
}

/** The records of sandboxes. */
export interface Sandboxes {
  /**
   * Stores an accepted sandbox within the quotas of its workspace, of the workspace's quota owner and of the
   * installation.
   * @param signal of the caller: one that has given up by its turn gets its signal's reason, and nothing is stored
   * @throws what `checkCreate` throws
   */
  create(sandbox: Sandbox, o: CreateOptions, signal?: AbortSignal): Promise<void>;
  /** Replaces the record if its version is still one below `sandbox`'s. False: it has been changed meanwhile. */
  update(sandbox: Sandbox, events: readonly StagedEvent[]): Promise<boolean>;
  /** Of any workspace, for the reconciler. */
  get(id: string): Promise<Sandbox | undefined>;
  /** The environment variables of one that has not ended. */
  findSealedEnv(id: string): Promise<Uint8Array | undefined>;
  /** By id, or by name: the live sandbox of that name, else the newest ended one. */
  find(workspaceId: string, idOrName: string): Promise<Sandbox | undefined>;
  /**
   * A workspace's sandboxes that match, newest first. The cost doesn't depend on how many others there are, but a list
   * by several labels may look at all sandboxes that have the rarest of them, and one by a prefix that many names have
   * at all of its other labels and states.
   */
  list(
    workspaceId: string,
    filter: SandboxFilter,
    page: { limit: number; after?: ListPosition; signal?: AbortSignal },
  ): Promise<Sandbox[]>;
  /** Sandboxes of all workspaces that match, newest first. */
  listAll(filter: InstallationFilter, page: { limit: number; after: ListPosition | undefined }): Promise<Sandbox[]>;
}

/** What the reconciler compares with the runtime's list: thousands of them, again and again. */
export type UnfinishedSandbox = Pick<
  Sandbox,
  "id" | "state" | "startedAt" | "readyAt" | "lastUsedAt" | "idleTimeoutSeconds" | "expiresAt" | "pinnedReference"
>;

/** The sandboxes of all workspaces that the reconciler has to work on: those that have not ended or are not cleaned. */
export interface UnfinishedSandboxes {
  /** By id. */
  list(page: { limit: number; afterId?: string }): Promise<UnfinishedSandbox[]>;
  /** How many of them are in each state; a state without any is left out. */
  countByState(): Promise<Partial<Record<SandboxState, number>>>;
  /** Records that the sandbox's container is gone. Only for ended sandboxes; the version stays. */
  markCleaned(id: string, at: Date): Promise<void>;
}

/** A use of a sandbox. */
export interface SandboxUsed {
  sandboxId: string;
  at: Date;
}

/** What is recorded of sandboxes between the changes of their records, whose versions stay. */
export interface SandboxActivity {
  /** Records uses, unless later ones are known; nothing of a sandbox without a record. */
  recordUses(uses: readonly SandboxUsed[]): Promise<void>;
  recordPull(sandboxId: string, progress: PullProgress): Promise<void>;
  /** Stages events of uses, but for those that were staged before. */
  stageUses(events: readonly StagedEvent[]): Promise<void>;
}

/** What has to be stopped and deleted of a deleted workspace, and which records have been kept long enough. */
export interface Retention {
  /** Up to `limit` of a workspace's live sandboxes. */
  listLive(workspaceId: string, limit: number): Promise<Sandbox[]>;
  /** Up to `limit` of a workspace's sandboxes that are not cleaned. */
  listUncleaned(workspaceId: string, limit: number): Promise<Sandbox[]>;
  /** Deletes up to `limit` of a workspace's cleaned records; returns how many. */
  deleteCleaned(workspaceId: string, limit: number): Promise<number>;
  /** Deletes up to `limit` cleaned records that ended before `before`; returns how many. */
  deleteEndedBefore(before: Date, limit: number): Promise<number>;
}

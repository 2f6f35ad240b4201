import type { ServiceStore } from "@sandgate/kit/storage/open-store";
import type { PurgeStore } from "@sandgate/kit/workspaces/workspace-purges";
import type { AuditStore } from "./audit.ts";
import type { Chunk, ChunkKind, PurgeLimits } from "./chunks.ts";
import type { LogQuotas } from "./quotas.ts";
import type { StreamName } from "./rows.ts";

/** One stream of rows of one container. */
export interface Source {
  sandboxId: string;
  workspaceId: string;
  containerId: string;
  kind: ChunkKind;
}

/** The rows of a source between two of its cursors. */
export interface Batch {
  source: Source;
  /** Empty for the source's first batch. */
  fromCursor: string;
  toCursor: string;
  /** Undefined when the batch has no rows and only moves the cursor. */
  chunk: Chunk | undefined;
  /** Nothing will follow. */
  final: boolean;
}

export interface StoredChunk {
  /** Sequences of its first and last rows. */
  firstSequence: number;
  lastSequence: number;
  lastUs: number;
  textBytes: number;
  body: Uint8Array;
}

export interface SandboxRecord {
  workspaceId: string;
  /** Sequences of the newest rows; 0: none yet. */
  sequences: Record<ChunkKind, number>;
  /** Nothing will follow from any of its sources, of which there is at least one. */
  final: boolean;
}

/** The last chunk of a page, after which the next page of a list from the newest to the oldest begins. */
export interface ChunkCursor {
  lastUs: number;
  firstSequence: number;
}

export interface ChunkQuery {
  sandboxId: string;
  kind: ChunkKind;
  /** Inclusive, as `untilUs`. */
  sinceUs: number;
  untilUs: number;
  /** Only chunks with lines of this stream. */
  stream?: StreamName | undefined;
  after?: ChunkCursor | undefined;
  limit: number;
}

export interface TailQuery {
  sandboxId: string;
  kind: ChunkKind;
  sequence: number;
  limit: number;
}

export interface Appended {
  accepted: boolean;
  storedCursor: string;
  /** Older lines that were removed for a quota. */
  removedLines: { sandbox: number; workspace: number };
}

export interface TelemetryStore extends ServiceStore, PurgeStore, AuditStore {
  /**
   * Stores a batch if the source's stored cursor is its `fromCursor`; otherwise returns the stored cursor and changes nothing.
   * Above a quota the oldest log chunks go: of the sandbox, or of the workspace, there those of ended sandboxes first. The new
   * lines stay. A quota that was lowered is enforced batch by batch.
   * Throws WORKSPACE_NOT_FOUND for a deleted workspace and CONFLICT for a sandbox of another workspace.
   */
  appendBatch(batch: Batch, o: { quotas: LogQuotas; now: Date }): Promise<Appended>;
  /**
   * When the lines of all workspaces come to more than `totalBytes`, removes some of the workspace that has most: its oldest, as
   * for its own quota. Returns how many lines, and whether there may be more to remove.
   */
  trimTotal(totalBytes: number): Promise<{ lines: number; more: boolean }>;
  /** Counts what workspaces have anew, where a version that doesn't count has stored or removed some. */
  recountLogs(): Promise<void>;
  /** Bytes of the database's file that new rows can take without more of the disk; undefined: the disk isn't this machine's. */
  reusableBytes(): number | undefined;
  /** Undefined while nothing of the sandbox is stored. */
  findSandbox(sandboxId: string): Promise<SandboxRecord | undefined>;
  /** Whether a container's log needs no more reading: it is stored to its end, or the workspace is deleted. */
  isDrained(container: Omit<Source, "kind">): Promise<boolean>;
  /** Whether the logs of all the sandbox's containers are stored to their ends, and there is at least one, or the workspace is deleted. */
  isSandboxDrained(sandbox: Pick<Source, "sandboxId" | "workspaceId">): Promise<boolean>;
  /** Chunks that may have rows of the stream between two times (in microseconds), newest first. */
  listChunks(query: ChunkQuery): Promise<StoredChunk[]>;
  /** Chunks with rows above a sequence, oldest first. */
  listChunksAfter(query: TailQuery): Promise<StoredChunk[]>;
  /** Removes some of what is older than `before`. True when there may be more. */
  sweepExpired(before: Date): Promise<boolean>;
  /** Removes some of what the workspace has, no more than these limits. True when there may be more. */
  purgeBatch(workspaceId: string, limits: PurgeLimits): Promise<boolean>;
}

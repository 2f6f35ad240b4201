import type { ServiceStore } from "@sandgate/kit/storage/open-store";
import type { PurgeStore } from "@sandgate/kit/workspaces/workspace-purges";
import type { Chunk, ChunkKind, PurgeLimits } from "./chunks.ts";
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
  /** Sequence of its first row. */
  firstSequence: number;
  lastUs: number;
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

export interface TelemetryStore extends ServiceStore, PurgeStore {
  /**
   * Stores a batch if the source's stored cursor is its `fromCursor`; otherwise returns the stored cursor and changes nothing.
   * When the sandbox's lines exceed `logQuotaBytes` (0: no quota), its oldest log chunks are removed.
   * Throws WORKSPACE_NOT_FOUND for a deleted workspace and CONFLICT for a sandbox of another workspace.
   */
  appendBatch(
    batch: Batch,
    o: { logQuotaBytes: number; now: Date },
  ): Promise<{ accepted: boolean; storedCursor: string }>;
  /** Undefined while nothing of the sandbox is stored. */
  findSandbox(sandboxId: string): Promise<SandboxRecord | undefined>;
  /** Whether a container's log needs no more reading: it is stored to its end, or the workspace is deleted. */
  isDrained(container: Omit<Source, "kind">): Promise<boolean>;
  /** Chunks that may have rows of the stream between two times (inclusive, in microseconds), newest first. */
  listChunks(o: {
    sandboxId: string;
    kind: ChunkKind;
    sinceUs: number;
    untilUs: number;
    stream?: StreamName | undefined;
    after?: ChunkCursor | undefined;
    limit: number;
  }): Promise<StoredChunk[]>;
  /** Chunks with rows above a sequence, oldest first. */
  listChunksAfter(o: { sandboxId: string; kind: ChunkKind; sequence: number; limit: number }): Promise<StoredChunk[]>;
  /** Removes some of what is older than `before`. True when there may be more. */
  sweepExpired(before: Date): Promise<boolean>;
  /** Removes some of what the workspace has, no more than these limits. True when there may be more. */
  purgeBatch(workspaceId: string, limits: PurgeLimits): Promise<boolean>;
}

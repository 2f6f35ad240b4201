import type { ServiceStore } from "@sandgate/kit/storage/open-store";
import type { PurgeStore } from "@sandgate/kit/workspaces/workspace-purges";
import type { Chunk, ChunkKind } from "./chunks.ts";
import type { StreamName } from "./rows.ts";

/** One stream of rows of one container. */
export interface Source {
  sandboxId: string;
  workspaceId: string;
  containerId: string;
  kind: ChunkKind;
}

/** What a source brought from one of its cursors to the next. */
export interface Batch {
  source: Source;
  /** Empty: the source's first. */
  fromCursor: string;
  toCursor: string;
  /** Undefined when the batch only moves the cursor. */
  chunk: Chunk | undefined;
  /** Nothing will follow. */
  final: boolean;
}

export interface StoredChunk {
  /** Sequence of its first row. */
  firstSequence: number;
  lastSequence: number;
  lastUs: number;
  body: Uint8Array;
}

export interface SandboxRecord {
  sandboxId: string;
  workspaceId: string;
  /** Sequences of the newest rows; 0: none yet. */
  sequences: Record<ChunkKind, number>;
  /** At least one source is known, and nothing will follow from any. */
  final: boolean;
}

/** The place after which to go on in a list of chunks that runs from the newest to the oldest. */
export interface ChunkPlace {
  lastUs: number;
  firstSequence: number;
}

export interface TelemetryStore extends ServiceStore, PurgeStore {
  /**
   * Stores a batch if the source's stored cursor is its `fromCursor`; else answers the stored one and changes nothing.
   * The oldest log chunks of the sandbox go when their `textBytes` exceed `logQuotaBytes` (0: no quota).
   * Throws WORKSPACE_NOT_FOUND for a workspace that was purged and CONFLICT for a sandbox of another workspace.
   */
  appendBatch(
    batch: Batch,
    o: { logQuotaBytes: number; now: Date },
  ): Promise<{ accepted: boolean; storedCursor: string }>;
  findSandbox(sandboxId: string): Promise<SandboxRecord | undefined>;
  /** Whether nothing more of a container's log will be stored: it was to its end, or the workspace is deleted. */
  isDrained(container: Omit<Source, "kind">): Promise<boolean>;
  /** Chunks that may hold rows of the times given (both inclusive, microseconds) and of the stream, newest first. */
  listChunks(o: {
    sandboxId: string;
    kind: ChunkKind;
    sinceUs: number;
    untilUs: number;
    stream?: StreamName | undefined;
    after?: ChunkPlace | undefined;
    limit: number;
  }): Promise<StoredChunk[]>;
  /** Chunks with rows above a sequence, oldest first. */
  listChunksAfter(o: { sandboxId: string; kind: ChunkKind; sequence: number; limit: number }): Promise<StoredChunk[]>;
  /** Removes a slice of what is older than `before`; answers whether there is more. */
  sweepExpired(before: Date): Promise<boolean>;
  /** Removes a slice of what the workspace has; answers whether there is more. */
  purgeSlice(workspaceId: string): Promise<boolean>;
}

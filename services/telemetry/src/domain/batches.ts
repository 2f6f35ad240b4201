import { DomainError } from "@sandgate/kit/base/domain-error";
import type { Chunk, ChunkKind } from "./chunks.ts";

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

/** What a store has of a sandbox. */
export interface SandboxRecord {
  workspaceId: string;
  /** Sequences of the newest rows; 0: none yet. */
  sequences: Record<ChunkKind, number>;
  /** Nothing will follow from any of its sources, of which there is at least one. */
  final: boolean;
}

/** What decides whether a batch is stored. */
export interface AppendState {
  isWorkspaceDeleted: boolean;
  /** Undefined while nothing of the sandbox is stored. */
  sandbox: Pick<SandboxRecord, "workspaceId"> | undefined;
  /** The source's; undefined before its first batch. */
  cursor: string | undefined;
}

/**
 * Whether a batch follows what is stored of its source. Throws WORKSPACE_NOT_FOUND for a deleted workspace and CONFLICT
 * for a sandbox of another workspace.
 */
export function decideAppend(
  { isWorkspaceDeleted, sandbox, cursor = "" }: AppendState,
  { source, fromCursor }: Batch,
): { accepted: boolean; storedCursor: string } {
  if (sandbox && sandbox.workspaceId !== source.workspaceId) {
    throw new DomainError("CONFLICT", "The sandbox belongs to another workspace.");
  }
  if (isWorkspaceDeleted) throw new DomainError("WORKSPACE_NOT_FOUND", "The workspace was deleted.");
  return { accepted: cursor === fromCursor, storedCursor: cursor };
}

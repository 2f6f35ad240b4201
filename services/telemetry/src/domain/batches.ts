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

/** How far a source is stored. */
export interface StoredSource extends Pick<Source, "containerId" | "kind"> {
  cursor: string;
  final: boolean;
}

/** What a store has of a sandbox. */
export interface SandboxRecord {
  workspaceId: string;
  /** Sequences of the newest rows; 0: none yet. */
  sequences: Record<ChunkKind, number>;
  sources: readonly StoredSource[];
}

/** Whether nothing will follow from any of the sandbox's sources, of which there is at least one. */
export function isFinal({ sources }: Pick<SandboxRecord, "sources">): boolean {
  return sources.length > 0 && sources.every(({ final }) => final);
}

/** The same of its sources of one kind. */
export function isKindFinal(sandbox: SandboxRecord | undefined, kind: ChunkKind): boolean {
  return isFinal({ sources: sourcesOf(sandbox, kind) });
}

/**
 * Whether the logs of these containers are stored to their ends; without `containerIds`, those of all containers that
 * are known, of which there must be one.
 */
export function areLogsStored(sandbox: SandboxRecord | undefined, containerIds?: readonly string[]): boolean {
  if (!containerIds) return isKindFinal(sandbox, "logs");
  const logs = sourcesOf(sandbox, "logs");
  return containerIds.every((id) => logs.some(({ containerId, final }) => containerId === id && final));
}

function sourcesOf(sandbox: SandboxRecord | undefined, kind: ChunkKind): StoredSource[] {
  return sandbox?.sources.filter((source) => source.kind === kind) ?? [];
}

/** What decides whether a batch is stored. */
export interface AppendState {
  isWorkspaceDeleted: boolean;
  /** Undefined while nothing of the sandbox is stored. */
  sandbox: SandboxRecord | undefined;
}

/**
 * Decides whether a batch follows what is stored of its source. Returns the source's cursor and the sandbox as they are
 * then; no sandbox: the batch is refused. Throws WORKSPACE_NOT_FOUND for a deleted workspace and CONFLICT for a sandbox
 * of another workspace.
 */
export function decideAppend(
  { isWorkspaceDeleted, sandbox }: AppendState,
  { source, fromCursor, toCursor, chunk, final }: Batch,
): { storedCursor: string; sandbox?: SandboxRecord } {
  const { workspaceId, containerId, kind } = source;
  if (sandbox && sandbox.workspaceId !== workspaceId) {
    throw new DomainError("CONFLICT", "The sandbox belongs to another workspace.");
  }
  if (isWorkspaceDeleted) throw new DomainError("WORKSPACE_NOT_FOUND", "The workspace was deleted.");
  const { sequences, sources } = sandbox ?? { sequences: { logs: 0, metrics: 0 }, sources: [] };
  const isOwn = (stored: StoredSource) => stored.containerId === containerId && stored.kind === kind;
  const storedCursor = sources.find(isOwn)?.cursor ?? "";
  if (storedCursor !== fromCursor) return { storedCursor };
  return {
    storedCursor: toCursor,
    sandbox: {
      workspaceId,
      sequences: { ...sequences, [kind]: sequences[kind] + (chunk?.rows ?? 0) },
      sources: [...sources.filter((stored) => !isOwn(stored)), { containerId, kind, cursor: toCursor, final }],
    },
  };
}

import { rowsIn, type StoredChunk } from "./chunks.ts";

/** What was removed of log chunks. */
export interface Removal {
  chunks: number;
  lines: number;
  /** As the log quota counts them. */
  bytes: number;
}

export const nothingRemoved: Readonly<Removal> = { chunks: 0, lines: 0, bytes: 0 };

export function addRemovals(a: Removal, b: Removal): Removal {
  return { chunks: a.chunks + b.chunks, lines: a.lines + b.lines, bytes: a.bytes + b.bytes };
}

/** How much is removed of log chunks. */
export interface RemovalLimits {
  /** Enough is removed once the chunks come to so many bytes. */
  bytes: number;
  /** The most chunks. */
  chunks: number;
  /** Rows that were just stored, by sandbox the sequence of the last; their chunk stays. */
  keep?: ReadonlyMap<string, number> | undefined;
}

/**
 * The most chunks that a transaction removes without a look at their sizes: under 20 ms even when each has a mebibyte of
 * lines.
 */
export const maxRemovedChunks = 32;

/**
 * What one transaction removes at most: many small chunks, but few that have a mebibyte of lines, so that none holds up
 * other writes for long.
 */
const maxRemoved = { chunks: 500, bytes: 32 * 1024 * 1024 };

/** The limits of one transaction where a quota is exceeded by so many bytes. */
export function limitsOver(bytes: number, keep?: RemovalLimits["keep"]): RemovalLimits {
  return { bytes: Math.min(bytes, maxRemoved.bytes), chunks: maxRemoved.chunks, keep };
}

/**
 * The limits of one step of a sandbox that runs, after which another's lines may be the oldest. Several small chunks,
 * so that a transaction has no more steps than with large ones.
 */
export function limitsOfStep(limits: RemovalLimits): RemovalLimits {
  return { ...limits, bytes: Math.min(limits.bytes, 1024 * 1024), chunks: Math.min(limits.chunks, 16) };
}

/** The limits of what is left to remove, when so much has been removed; undefined when that is enough. */
export function limitsAfter(limits: RemovalLimits, removed: Removal): RemovalLimits | undefined {
  const left = { ...limits, bytes: limits.bytes - removed.bytes, chunks: limits.chunks - removed.chunks };
  return left.bytes > 0 && left.chunks > 0 ? left : undefined;
}

/** Chooses which log chunks of a sandbox go, given its oldest ones in their order. */
export function chooseOldest<C extends Pick<StoredChunk, "firstSequence" | "lastSequence" | "textBytes">>(
  sandboxId: string,
  oldest: readonly C[],
  limits: RemovalLimits,
): { chosen: readonly C[]; removal: Removal } {
  const keptSequence = limits.keep?.get(sandboxId) ?? Number.POSITIVE_INFINITY;
  const chosen: C[] = [];
  let removal: Removal = nothingRemoved;
  for (const chunk of oldest) {
    if (!limitsAfter(limits, removal) || chunk.lastSequence >= keptSequence) break;
    chosen.push(chunk);
    removal = addRemovals(removal, { chunks: 1, lines: rowsIn(chunk), bytes: chunk.textBytes });
  }
  return { chosen, removal };
}

/** What a purge removes in one transaction at most. */
export interface PurgeLimits {
  sandboxes: number;
  chunks: number;
  /** Of lines, before they were compressed. */
  textBytes: number;
}

export const purgeLimits: PurgeLimits = { sandboxes: 100, chunks: maxRemoved.chunks, textBytes: maxRemoved.bytes };

/** What a purge found of a workspace: some of its sandboxes, and some of these sandboxes' chunks. */
export interface PurgeState<C> {
  sandboxIds: readonly string[];
  chunks: readonly C[];
}

/** What one transaction of a purge removes. */
export interface PurgeBatch<C> {
  chunks: readonly C[];
  textBytes: number;
  /** Those of which no chunk is left. */
  sandboxIds: readonly string[];
  /** There may be more to remove. */
  more: boolean;
}

/** Chooses the first chunks up to the limit of bytes, at least one, and the sandboxes once all their chunks go. */
export function decidePurgeBatch<C extends { textBytes: number }>(
  { sandboxIds, chunks }: PurgeState<C>,
  limits: PurgeLimits,
): PurgeBatch<C> {
  let textBytes = 0;
  const end = chunks.findIndex(({ textBytes: bytes }, i) => {
    if (i > 0 && textBytes + bytes > limits.textBytes) return true;
    textBytes += bytes;
    return false;
  });
  const chosen = end === -1 ? chunks : chunks.slice(0, end);
  const isLast = chosen.length === chunks.length && chunks.length < limits.chunks;
  return {
    chunks: chosen,
    textBytes,
    sandboxIds: isLast ? sandboxIds : [],
    more: !isLast || sandboxIds.length === limits.sandboxes,
  };
}

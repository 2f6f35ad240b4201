import { createFairLimit, type FairLimit } from "@sandgate/kit/base/fair-limit";
import type { OpenChunk } from "../domain/chunks.ts";

/**
 * How many chunks tails may have open at once, in all and for a workspace. Each takes up to 1 MiB, and as much again
 * while it is opened.
 */
const maxOpen = { total: 64, perKey: 16 };
/** After so long without a read a chunk is closed, so that others get its slot. */
const idleMs = 1_000;

/** Limits the memory of all tails of a process. A free slot goes to the workspace that has the fewest. */
export type ChunkSlots = FairLimit;

export function createChunkSlots(): ChunkSlots {
  return createFairLimit(maxOpen);
}

/**
 * Waits for a slot of the workspace. Returns the function that leaves it, which may be called twice; throws the signal's
 * reason.
 */
export async function takeSlot(slots: ChunkSlots, workspaceId: string, signal: AbortSignal): Promise<() => void> {
  const taken = Promise.withResolvers<void>();
  const left = Promise.withResolvers<void>();
  const hold = () => {
    taken.resolve();
    return left.promise;
  };
  slots(workspaceId, hold, signal).catch(taken.reject);
  await taken.promise;
  return left.resolve;
}

/** Reads a chunk row by row. */
export interface ChunkReader<R> {
  /** The next row; undefined when there is none, or when the chunk was closed because it was not read for a second. */
  next(): { index: number; textBytes: number; row: R } | undefined;
  close(): void;
}

/** Reads from `index` on. `onClosed` is called once no further row can be read. */
export function readChunk<R, O extends OpenChunk<unknown>>(
  chunk: O,
  { index, rowAt, onClosed }: { index: number; rowAt: (chunk: O, index: number) => R; onClosed: () => void },
): ChunkReader<R> {
  // Only this, and other tails that have the chunk open, refer to it, so that closing frees its memory.
  let open: O | undefined = chunk;
  let at = index;
  function close(): void {
    clearTimeout(idle);
    open = undefined;
    onClosed();
  }
  const idle = setTimeout(close, idleMs);
  return {
    next() {
      if (!open) return undefined;
      const read = { index: at, textBytes: open.textBytesAt(at), row: rowAt(open, at) };
      at += 1;
      if (at < open.timesNs.length) idle.refresh();
      else close();
      return read;
    },
    close,
  };
}

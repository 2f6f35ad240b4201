// Loaded by the database's writer and reader threads too: nothing heavy is imported here.
import { deepFreeze } from "@sandgate/kit/base/freeze";
import { LRUCache } from "lru-cache";
import type { Sandbox } from "../domain/sandbox.ts";

/** A sandbox as it is stored. */
export interface Row {
  record: string;
  cleaned_at: number | null;
  last_used_at: number | null;
  downloaded_bytes: number | null;
  total_bytes: number | null;
}

export const rowColumns = "record, cleaned_at, last_used_at, downloaded_bytes, total_bytes";

/** T as JSON holds it: with its dates as text. */
type Stored<T> = T extends Date ? string : T extends object ? { [K in keyof T]: Stored<T[K]> } : T;

/** What has a column of its own, since it changes without the record's version. */
type Unversioned = "cleanedAt" | "lastUsedAt" | "pull";

/** Dates as ISO text. */
export function encodeRecord(sandbox: Sandbox): string {
  const { cleanedAt: _cleanedAt, lastUsedAt: _lastUsedAt, pull: _pull, ...record } = sandbox;
  return JSON.stringify(record);
}

/**
 * The record as `encodeRecord` wrote it. Each of its dates is named here, since a label may look like one; one that is
 * forgotten doesn't compile.
 */
export function decodeRow(row: Row): Sandbox {
  const stored: Stored<Omit<Sandbox, Unversioned>> = JSON.parse(row.record);
  const { downloaded_bytes: downloadedBytes, total_bytes: totalBytes } = row;
  const { createdAt, updatedAt, startedAt, readyAt, expiresAt, stoppedAt, timeline, ...others } = stored;
  return {
    ...others,
    createdAt: new Date(createdAt),
    updatedAt: new Date(updatedAt),
    ...(startedAt !== undefined && { startedAt: new Date(startedAt) }),
    ...(readyAt !== undefined && { readyAt: new Date(readyAt) }),
    ...(expiresAt !== undefined && { expiresAt: new Date(expiresAt) }),
    ...(stoppedAt !== undefined && { stoppedAt: new Date(stoppedAt) }),
    timeline: timeline.map(({ at, ...entry }) => ({ ...entry, at: new Date(at) })),
    ...(row.cleaned_at !== null && { cleanedAt: new Date(row.cleaned_at) }),
    ...(row.last_used_at !== null && { lastUsedAt: new Date(row.last_used_at) }),
    ...(downloadedBytes !== null && totalBytes !== null && { pull: { downloadedBytes, totalBytes } }),
  };
}

/** Records remembered in decoded form, of a few KB each. */
const maxRemembered = 1_000;

/**
 * `decodeRow` for records that are read one at a time, often the same again: clients ask until a sandbox is ready, and
 * a pass of the reconciler reads several times. Decoding costs more than reading. The text of the record is the key, so
 * what is remembered is never old.
 */
export function createDecoder(): (row: Row) => Sandbox {
  const remembered = new LRUCache<string, { row: Row; sandbox: Sandbox }>({ max: maxRemembered });
  return (row) => {
    const known = remembered.get(row.record);
    if (known && hasSameColumns(known.row, row)) return known.sandbox;
    const sandbox = deepFreeze(decodeRow(row));
    remembered.set(row.record, { row, sandbox });
    return sandbox;
  };
}

function hasSameColumns(one: Row, other: Row): boolean {
  return (
    one.cleaned_at === other.cleaned_at &&
    one.last_used_at === other.last_used_at &&
    one.downloaded_bytes === other.downloaded_bytes &&
    one.total_bytes === other.total_bytes
  );
}

import { DomainError } from "@sandgate/kit/base/domain-error";
import { type Entry, EntryType, type WatchResponse_Change } from "@sandgate/proto/helper/v1/file";
import type { GetInfoResponse, GetUserResponse } from "@sandgate/proto/helper/v1/helper";

/** Of the years that google.protobuf.Timestamp can hold. A file may have any time. */
const seconds = { first: -62_135_596_800n, last: 253_402_300_799n };
const maxId = 2 ** 32;
/** What is watched may lie deeper than a path may be long. */
const maxPathBytes = 16_384;
const maxFolderLength = 4_095;
const maxBytes = BigInt(Number.MAX_SAFE_INTEGER);

/**
 * What the helper says of a file, within the bounds of its contract. Throws UPSTREAM_ERROR for what nothing could be.
 */
export function boundEntry(entry: Entry | undefined): Entry {
  if (!entry || !isPossible(entry)) throw new DomainError("UPSTREAM_ERROR", "The sandbox's helper told of no file.");
  const { modifiedAt } = entry;
  if (modifiedAt) {
    if (modifiedAt.seconds < seconds.first) modifiedAt.seconds = seconds.first;
    if (modifiedAt.seconds > seconds.last) modifiedAt.seconds = seconds.last;
    modifiedAt.nanos = Math.min(Math.max(modifiedAt.nanos, 0), 999_999_999);
  }
  return entry;
}

function isPossible({ path, type, size, mode, uid, gid, modifiedAt, etag }: Entry): boolean {
  return (
    path.length > 0 &&
    type !== EntryType.UNSPECIFIED &&
    size >= 0n &&
    size <= maxBytes &&
    mode <= 0o7777 &&
    uid < maxId &&
    gid < maxId &&
    modifiedAt !== undefined &&
    // It becomes part of a header.
    /^[\x21\x23-\x7e]{0,128}$/.test(etag)
  );
}

/** The same for a page of at most `limit`. */
export function boundEntries(entries: readonly Entry[], limit: number): Entry[] {
  if (entries.length <= limit) return entries.map(boundEntry);
  throw new DomainError("UPSTREAM_ERROR", "The sandbox's helper told of more files than it was asked for.");
}

/** Throws UPSTREAM_ERROR for a change of what nothing could be called. */
export function boundChange(change: WatchResponse_Change): WatchResponse_Change {
  if (change.path.length <= maxPathBytes && change.to.length <= maxPathBytes) return change;
  throw new DomainError("UPSTREAM_ERROR", "The sandbox's helper told of no file.");
}

/** The same for the id of a watcher. */
export function boundWatcherId(id: string): string {
  if (isRandomId(id)) return id;
  throw new DomainError("UPSTREAM_ERROR", "The sandbox's helper told of no watcher.");
}

/** The same for a run of the helper. */
export function boundInfo(info: GetInfoResponse): GetInfoResponse {
  if (isRandomId(info.instanceId)) return info;
  throw new DomainError("UPSTREAM_ERROR", "The sandbox's helper told of no run.");
}

/** What the helper makes up. */
function isRandomId(id: string): boolean {
  return /^\w{1,64}$/.test(id);
}

/** The same for a user. */
export function boundUser({ uid, gid, home }: GetUserResponse): { uid: number; gid: number; home: string } {
  if (uid >= maxId || gid >= maxId) throw new DomainError("UPSTREAM_ERROR", "The sandbox's helper told of no user.");
  return { uid, gid, home: boundFolder(home) };
}

/** The same for a folder. */
export function boundFolder(path: string): string {
  if (path !== "" && path.length <= maxFolderLength) return path;
  throw new DomainError("UPSTREAM_ERROR", "The sandbox's helper told of no folder.");
}

import { Code, ConnectError } from "@connectrpc/connect";
import { DomainError } from "../base/domain-error.ts";
import { connectCodeOf } from "../base/reasons.ts";
import { isDatabaseUnreachable } from "../storage/database-unreachable.ts";

const systemCodes = new Set<unknown>([
  "ECONNREFUSED",
  "ECONNRESET",
  "ECONNABORTED",
  "EPIPE",
  "ETIMEDOUT",
  "EHOSTUNREACH",
  "ENETUNREACH",
  "ENOTFOUND",
  "EAI_AGAIN",
  // A full or broken disk.
  "ENOSPC",
  "EDQUOT",
  "EIO",
  "EROFS",
]);
const connectCodes = new Set([Code.Unavailable, Code.DeadlineExceeded, Code.Aborted]);
/** SQLite's primary result codes BUSY, LOCKED, READONLY, IOERR, FULL and CANTOPEN. https://sqlite.org/rescode.html */
const sqliteCodes = new Set([5, 6, 8, 10, 13, 14]);

/**
 * True when something failed because what it depends on can't be reached or can't work: a database, its disk, another
 * service, the network. The same will succeed once that is back, so such a failure says nothing about an event.
 */
export function isDependencyAway(error: unknown): boolean {
  if (!(error instanceof Error)) return false;
  if (isDatabaseUnreachable(error)) return true;
  if (error instanceof DomainError && connectCodeOf(error.reason) === "Unavailable") return true;
  if (error instanceof ConnectError && connectCodes.has(error.code)) return true;
  const { code, errcode } = error as { code?: unknown; errcode?: unknown };
  // The low byte of an extended result code is the primary one.
  if (typeof errcode === "number" && sqliteCodes.has(errcode & 0xff)) return true;
  return systemCodes.has(code) || isDependencyAway(error.cause);
}

import { DomainError } from "../base/domain-error.ts";
import { mebibyte } from "../base/sizes.ts";
import { addMs } from "../base/time.ts";

/** The response of a call with an Idempotency-Key. It is stored in the transaction of what the call creates. */
export interface IdempotencyRecord {
  /** Hash of the caller, the method and the key. */
  id: string;
  /**
   * The request's hash and the response, sealed together. A bare hash of a request with a password could be guessed at.
   */
  sealed: Uint8Array;
  /** What it is sealed for besides the id. Re-encryption needs it. */
  service: string;
  workspace: string;
  /** Whom it is counted for: the workspace, or the user where there is none. */
  owner: string;
}

/** Another call with the same Idempotency-Key came first, so its response is the one to return. */
export class IdempotencyRecordExists extends Error {
  override readonly name = "IdempotencyRecordExists";
}

/** The first responses to calls with an Idempotency-Key. Transactions store them with `tx.keepIdempotencyRecord`. */
export interface IdempotencyStore {
  /** Returns the record of this id, unless it is older than 24 h. */
  find(id: string): Promise<Pick<IdempotencyRecord, "id" | "sealed"> | undefined>;
}

/** How long a response is repeated. */
export const idempotencyRecordKeptMs = 24 * 60 * 60 * 1000;

/** What the responses of one owner may take in a day. Ordinary ones take less at the limit of changes. */
export const maxRecordBytes = 32 * mebibyte;
/** About what a record takes besides the response. */
const recordOverheadBytes = 256;

/** What responses take that were stored for an owner in a day, which began with the first of them. */
export interface RecordUsage {
  bytes: number;
  endsAt: Date;
}

/** Adds a record to what those of its owner take. Throws RATE_LIMITED above the limit. */
export function addRecordUsage(usage: RecordUsage | undefined, { sealed }: IdempotencyRecord, now: Date): RecordUsage {
  const current = usage && usage.endsAt > now ? usage : { bytes: 0, endsAt: addMs(now, idempotencyRecordKeptMs) };
  const bytes = current.bytes + sealed.length + recordOverheadBytes;
  if (bytes <= maxRecordBytes) return { ...current, bytes };
  throw new DomainError("RATE_LIMITED", "The answers that are kept for Idempotency-Key headers take too much space.", {
    hint: `Those of a workspace may take ${maxRecordBytes / mebibyte} MB a day. Leave the header out, send less, such as fewer labels, or wait for the number of seconds in the Retry-After header.`,
    retryAfterSeconds: Math.max(1, Math.ceil((current.endsAt.getTime() - now.getTime()) / 1000)),
  });
}

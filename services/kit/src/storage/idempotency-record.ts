/** The answer of a call with an Idempotency-Key, stored in the transaction of what the call creates. */
export interface IdempotencyRecord {
  /** Hash of the caller, the method and the key. */
  id: string;
  /** The request's hash and the response, sealed together: a request may hold a password, whose bare hash could be guessed at. */
  sealed: Uint8Array;
  /** What it is sealed for besides the id, so that it can be re-encrypted. */
  service?: string;
  workspace?: string;
}

/** Another call with the same Idempotency-Key was first; its answer is the one to give. */
export class IdempotencyRecordExists extends Error {
  override readonly name = "IdempotencyRecordExists";
}

/** The first answers to calls with an Idempotency-Key, which a transaction stores with `tx.keepIdempotencyRecord`. */
export interface IdempotencyStore {
  /** The record of this id, unless it is older than 24 h. */
  find(id: string): Promise<IdempotencyRecord | undefined>;
}

/** How long an answer is given again. */
export const idempotencyRecordKeptMs = 24 * 60 * 60 * 1000;

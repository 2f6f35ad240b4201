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

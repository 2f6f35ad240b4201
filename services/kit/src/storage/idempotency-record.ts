/** The answer of a call with an Idempotency-Key, stored in the transaction of what the call creates. */
export interface Claim {
  /** Hash of the caller, the method and the key. */
  id: string;
  /** The request's hash and the response, sealed together: a request may hold a password, whose bare hash could be guessed at. */
  sealed: Uint8Array;
}

/** Another call with the same Idempotency-Key was first; its answer is the one to give. */
export class ClaimTaken extends Error {
  override readonly name = "ClaimTaken";
}

/** How long an answer is given again. */
export const claimKeptMs = 24 * 60 * 60 * 1000;

import type { Violation } from "../base/domain-error.ts";
import type { Reason } from "../base/reasons.ts";

/** What the writer thread is started with. */
export interface WriterData {
  file: string;
  migrations: readonly string[];
  /** The address of the module that exports `transactions`; none for the kit's own alone. */
  transactions: string | undefined;
}

/** A transaction to run; those of the kit have names of their own. */
export interface WriteRequest {
  id: number;
  owner: "kit" | "service";
  name: string;
  args: readonly unknown[];
}

export type WriterRequest = { write: WriteRequest } | { close: true };

export interface WriteAnswer {
  id: number;
  result?: unknown;
  failure?: Failure;
}

export type WriterAnswer =
  | { ready: true }
  | { refused: Failure }
  /** All answers of one committed group. */
  | { answers: WriteAnswer[]; staged: boolean };

/** An error as plain data, since classes don't pass between threads. */
export type Failure =
  | {
      kind: "domain";
      reason: Reason;
      message: string;
      hint?: string | undefined;
      violations?: readonly Violation[] | undefined;
      retryAfterSeconds?: number | undefined;
    }
  | { kind: "idempotency-record-exists"; message: string }
  | { kind: "other"; message: string; stack?: string | undefined; errcode?: number | undefined };

import type { MessagePort } from "node:worker_threads";
import { DomainError, type Violation } from "../base/domain-error.ts";
import type { Reason } from "../base/reasons.ts";
import { IdempotencyRecordExists } from "./idempotency-record.ts";

/**
 * One step of a database's schema: SQL that is run once, with all the other steps in one transaction. `batches` is a statement
 * that is run in transactions of its own, again and again until it changes nothing: for rows of which there may be many. A
 * crash between two of them must leave it with the rest to do.
 */
export type SqliteMigration = string | { readonly batches: string };

/** What a thread gets for each database that it serves. */
export interface DatabasePort<D> {
  port: MessagePort;
  data: D;
}

/** What the writer thread needs for a database. */
export interface WriterData {
  file: string;
  migrations: readonly SqliteMigration[];
  /** The address of the module that exports `transactions`; none for the kit's own alone. */
  transactions: string | undefined;
}

/** What the reader thread needs. */
export interface ReaderData {
  file: string;
  /** The address of the module that exports `queries`. */
  queries: string;
}

/** A function of a module, by its name, with its arguments. */
export interface Call {
  name: string;
  args: readonly unknown[];
}

/** A transaction to run; those of the kit have names of their own. */
export interface WriteCall extends Call {
  owner: "kit" | "service";
}

export type ThreadRequest<C extends Call> = { id: number; call: C } | { close: true };

export interface CallAnswer {
  id: number;
  result?: unknown;
  failure?: Failure;
}

export type ThreadAnswer =
  | { ready: true }
  | { refused: Failure }
  /** All answers of one committed group, or of one query. `staged`: events were. */
  | { answers: CallAnswer[]; staged?: boolean };

export type Answer = (message: ThreadAnswer) => void;

/** Serves a database over its port, or closes the port with the reason why that can't be. */
export async function serveOver(port: MessagePort, serve: (answer: Answer) => Promise<void>): Promise<void> {
  const answer: Answer = (message) => port.postMessage(message);
  try {
    await serve(answer);
  } catch (error) {
    answer({ refused: toFailure(error) });
    port.close();
  }
}

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

/** The error as plain data. */
export function toFailure(error: unknown): Failure {
  if (error instanceof IdempotencyRecordExists) return { kind: "idempotency-record-exists", message: error.message };
  if (error instanceof DomainError) {
    const { reason, message, hint, violations, retryAfterSeconds } = error;
    return { kind: "domain", reason, message, hint, violations, retryAfterSeconds };
  }
  if (!(error instanceof Error)) return { kind: "other", message: String(error) };
  const errcode = "errcode" in error && typeof error.errcode === "number" ? error.errcode : undefined;
  return { kind: "other", message: error.message, stack: error.stack, errcode };
}

/** The error that a failure was. */
export function toError(failure: Failure): Error {
  if (failure.kind === "idempotency-record-exists") return new IdempotencyRecordExists(failure.message);
  if (failure.kind === "domain") {
    const { reason, message, hint, violations, retryAfterSeconds } = failure;
    return new DomainError(reason, message, {
      ...(hint !== undefined && { hint }),
      ...(violations && { violations }),
      ...(retryAfterSeconds !== undefined && { retryAfterSeconds }),
    });
  }
  const error = new Error(failure.message);
  if (failure.stack) error.stack = failure.stack;
  return failure.errcode === undefined ? error : Object.assign(error, { errcode: failure.errcode });
}

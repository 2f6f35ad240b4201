import type { MessagePort } from "node:worker_threads";
import { DomainError, type DomainErrorOptions } from "../base/domain-error.ts";
import type { Reason } from "../base/reasons.ts";
import { IdempotencyRecordExists } from "./idempotency-record.ts";

/**
 * One step of a database's schema: SQL that runs once, in one transaction with all other steps. `batches` is a
 * statement for rows of which there may be many. It runs in transactions of its own until it changes nothing, and after
 * a crash it must go on with the remaining rows.
 */
export type SqliteMigration = string | { readonly batches: string };

/** What a thread gets for each database it serves. */
export interface DatabasePort<D> {
  port: MessagePort;
  data: D;
}

/** What the writer thread needs for a database. */
export interface WriterData {
  file: string;
  migrations: readonly SqliteMigration[];
  /** The address of the module that exports `transactions`; undefined for a database with the kit's own alone. */
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

/** A transaction to run, of the kit or of the service. */
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
  /** Sent before an existing database is copied and migrated. */
  | { migrating: true }
  | { refused: Failure }
  /** All answers of one committed group or of one query. `staged` says whether events were staged. */
  | { answers: CallAnswer[]; staged?: boolean };

export type Answer = (message: ThreadAnswer) => void;

/** Serves a database over its port. If that fails, sends the reason and closes the port. */
export async function serveOver(port: MessagePort, serve: (answer: Answer) => Promise<void>): Promise<void> {
  const answer: Answer = (message) => port.postMessage(message);
  try {
    await serve(answer);
  } catch (error) {
    answer({ refused: toFailure(error) });
    port.close();
  }
}

/** An error as plain data, since class instances can't pass between threads. */
export type Failure =
  | { kind: "domain"; reason: Reason; message: string; options: DomainErrorOptions }
  | { kind: "idempotency-record-exists"; message: string }
  | { kind: "other"; message: string; stack?: string | undefined; errcode?: number | undefined };

/** Turns an error into plain data. */
export function toFailure(error: unknown): Failure {
  if (error instanceof IdempotencyRecordExists) return { kind: "idempotency-record-exists", message: error.message };
  if (error instanceof DomainError) {
    const { reason, message, hint, violations, retryAfterSeconds, callersFault, errno } = error;
    return { kind: "domain", reason, message, options: { hint, violations, retryAfterSeconds, callersFault, errno } };
  }
  if (!(error instanceof Error)) return { kind: "other", message: String(error) };
  const errcode = "errcode" in error && typeof error.errcode === "number" ? error.errcode : undefined;
  return { kind: "other", message: error.message, stack: error.stack, errcode };
}

/** Turns plain data back into the error. */
export function toError(failure: Failure): Error {
  if (failure.kind === "idempotency-record-exists") return new IdempotencyRecordExists(failure.message);
  if (failure.kind === "domain") return new DomainError(failure.reason, failure.message, failure.options);
  const error = new Error(failure.message);
  if (failure.stack) error.stack = failure.stack;
  return failure.errcode === undefined ? error : Object.assign(error, { errcode: failure.errcode });
}

import type { IdempotencyRecord } from "./idempotency-record.ts";
import type { StagedEvent } from "./outbox-store.ts";
import type { SqliteConnection } from "./sqlite-connection.ts";

/** What a function of a service's transactions module reads and writes with. It is valid until the function returns. */
export interface Transaction {
  readonly db: SqliteConnection;
  /** Stages the events that this change causes. */
  publish(events: readonly StagedEvent[]): void;
  /** Stages those of the events that are not in the outbox yet. */
  publishOnce(events: readonly StagedEvent[]): void;
  /**
   * Stores the response of a call with an Idempotency-Key. Throws IdempotencyRecordExists if another call came first,
   * and RATE_LIMITED if the responses of its owner take too much.
   */
  keepIdempotencyRecord(record: IdempotencyRecord | undefined): void;
}

/** A module's transactions: plain functions without await, whose arguments and results can be structured-cloned. */
export type Transactions = Record<string, (tx: Transaction, ...args: never[]) => unknown>;

/**
 * The transaction behind a method of a store's port: it takes the method's arguments and answers what that promises.
 */
export type TransactionOf<M extends (...args: never[]) => Promise<unknown>> = (
  tx: Transaction,
  ...args: Parameters<M>
) => Awaited<ReturnType<M>>;

import type { IdempotencyRecord } from "./idempotency-record.ts";
import type { StagedEvent } from "./outbox-store.ts";
import type { SqliteConnection } from "./sqlite-connection.ts";

/** What a transaction of a service's transactions module works with. It is over when the function returns. */
export interface Transaction {
  readonly db: SqliteConnection;
  /** Stages the events that this change causes. */
  publish(events: readonly StagedEvent[]): void;
  /** Stores the answer of a call with an Idempotency-Key. Throws IdempotencyRecordExists when another call was first. */
  keepIdempotencyRecord(record: IdempotencyRecord | undefined): void;
}

/** A module's transactions: plain functions without await, whose arguments and results can be structured-cloned. */
export type Transactions = Record<string, (tx: Transaction, ...args: never[]) => unknown>;

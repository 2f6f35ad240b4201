import type { SqliteConnection } from "./sqlite-connection.ts";

/** What a query reads with. */
export type QueryConnection = Pick<SqliteConnection, "get" | "all">;

/** A module's queries: plain functions without await, whose arguments and results can be structured-cloned. */
export type Queries = Record<string, (db: QueryConnection, ...args: never[]) => unknown>;

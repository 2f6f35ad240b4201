import type { DatabaseSync, SQLInputValue, SQLOutputValue, StatementSync } from "node:sqlite";
import { LRUCache } from "lru-cache";

/** What a statement accepts: a boolean becomes 0 or 1, a Date its epoch milliseconds, and undefined NULL. */
type SqliteValue = SQLInputValue | boolean | Date | undefined;
/** Values for `?` in order, or one object for `:name`. */
type SqliteParameters = readonly SqliteValue[] | readonly [Readonly<Record<string, SqliteValue>>];
type SqliteRow = Record<string, SQLOutputValue>;
/**
 * Columns have the types that SQLite returns. A row type with a Date or a boolean, which need a conversion, doesn't
 * compile.
 */
type RowOf<R> = Record<keyof R, null | number | bigint | string | Uint8Array>;

/**
 * A connection whose statements are prepared once and kept. The row type of `get` and `all` is the caller's claim about
 * the columns that its SQL selects.
 */
export interface SqliteConnection {
  get<R extends RowOf<R> = SqliteRow>(sql: string, ...parameters: SqliteParameters): R | undefined;
  all<R extends RowOf<R> = SqliteRow>(sql: string, ...parameters: SqliteParameters): R[];
  /** Returns how many rows changed. */
  run(sql: string, ...parameters: SqliteParameters): number;
}

/** How many prepared statements a connection keeps, so that generated SQL doesn't fill the memory. */
const keptStatements = 500;

/** Wraps an open database, which the caller closes. */
export function createConnection(db: DatabaseSync): SqliteConnection {
  const statements = new LRUCache<string, StatementSync>({ max: keptStatements });
  const prepare = (sql: string): StatementSync => {
    const known = statements.get(sql);
    if (known) return known;
    const statement = db.prepare(sql);
    statements.set(sql, statement);
    return statement;
  };
  return {
    get<R extends RowOf<R>>(sql: string, ...parameters: SqliteParameters): R | undefined {
      const statement = prepare(sql);
      const [named, positional] = bind(parameters);
      return (named ? statement.get(named) : statement.get(...positional)) as R | undefined;
    },
    all<R extends RowOf<R>>(sql: string, ...parameters: SqliteParameters): R[] {
      const statement = prepare(sql);
      const [named, positional] = bind(parameters);
      return (named ? statement.all(named) : statement.all(...positional)) as R[];
    },
    run(sql, ...parameters) {
      const statement = prepare(sql);
      const [named, positional] = bind(parameters);
      return Number((named ? statement.run(named) : statement.run(...positional)).changes);
    },
  };
}

function bind(parameters: SqliteParameters): [Record<string, SQLInputValue> | undefined, SQLInputValue[]] {
  const [first] = parameters;
  if (isNamed(first)) {
    return [Object.fromEntries(Object.entries(first).map(([name, value]) => [name, toInput(value)])), []];
  }
  const positional: SQLInputValue[] = [];
  for (const value of parameters) if (!isNamed(value)) positional.push(toInput(value));
  return [undefined, positional];
}

function isNamed(
  value: SqliteValue | Readonly<Record<string, SqliteValue>>,
): value is Readonly<Record<string, SqliteValue>> {
  return typeof value === "object" && value !== null && !(value instanceof Date) && !ArrayBuffer.isView(value);
}

function toInput(value: SqliteValue): SQLInputValue {
  if (value === undefined) return null;
  if (typeof value === "boolean") return value ? 1 : 0;
  return value instanceof Date ? value.getTime() : value;
}

/** The reader thread of one SQLite database; sqlite.ts starts it. */
import { DatabaseSync } from "node:sqlite";
import { type MessagePort, parentPort } from "node:worker_threads";
import type { Queries } from "./queries.ts";
import { createConnection } from "./sqlite-connection.ts";
import {
  type Answer,
  type Call,
  type DatabasePort,
  type ReaderData,
  serveOver,
  type ThreadRequest,
  toFailure,
} from "./sqlite-messages.ts";

if (!parentPort) throw new Error("sqlite-reader.ts runs in a thread");
parentPort.on("message", ({ port, data }: DatabasePort<ReaderData>) =>
  serveOver(port, (answer) => serve(port, data, answer)),
);

async function serve(port: MessagePort, { file, queries: address }: ReaderData, answer: Answer): Promise<void> {
  const queries = await importQueries(address);
  const db = new DatabaseSync(file, { readOnly: true, timeout: 5000 });
  const connection = createConnection(db);

  /** All statements of a query see the same state of the database, that of the first one. */
  const run = ({ name, args }: Call): unknown => {
    const query = Object.hasOwn(queries, name) ? queries[name] : undefined;
    if (!query) throw new Error(`There is no query ${name} in ${address}`);
    db.exec("BEGIN");
    try {
      const result = query(connection, ...(args as never[]));
      if (result instanceof Promise) throw new Error(`The query ${name} is async: it must not wait`);
      return result;
    } finally {
      // Some failures have already ended the transaction.
      if (db.isTransaction) db.exec("COMMIT");
    }
  };

  port.on("message", (request: ThreadRequest<Call>) => {
    if ("close" in request) {
      db.close();
      port.close();
      return;
    }
    const { id, call } = request;
    try {
      answer({ answers: [{ id, result: run(call) }] });
    } catch (error) {
      answer({ answers: [{ id, failure: toFailure(error) }] });
    }
  });
  answer({ ready: true });
}

async function importQueries(address: string): Promise<Queries> {
  const module: { queries?: Queries } = await import(address);
  if (!module.queries) throw new Error(`${address} exports no queries`);
  return module.queries;
}

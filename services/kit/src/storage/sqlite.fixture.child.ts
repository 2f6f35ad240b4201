/**
 * Writes notes from several callers to the database named by the argument and prints the id of each that was
 * acknowledged. With `write` or `query` and the name of a function that ends that thread, runs that alone and prints
 * the log. With `close` it only closes the database, and with `migrate` it gives that a further step first.
 */
import { pino } from "pino";
import { migrations, type queries, type transactions } from "./sqlite.fixture.ts";
import { openSqlite } from "./sqlite.ts";

const [, , file = "", thread, ending] = process.argv;
const fixture = new URL("./sqlite.fixture.ts", import.meta.url);
const database = await openSqlite<typeof transactions, typeof queries>({
  file,
  migrations: thread === "migrate" ? [...migrations, "ALTER TABLE notes ADD COLUMN text TEXT"] : migrations,
  transactions: fixture,
  queries: fixture,
  logger: pino({ enabled: ending !== undefined }),
});
if ((thread === "write" || thread === "query") && (ending === "endThread" || ending === "throwInThread")) {
  setInterval(() => {}, 1_000);
  // What becomes of the call must not be what ends the process.
  await database[thread][ending]().catch(() => new Promise(() => {}));
}
if (thread === "close" || thread === "migrate") {
  await database.close();
} else {
  await Promise.all(
    Array.from({ length: 8 }, async (_, caller) => {
      for (let number = 0; ; number++) process.stdout.write(`${await database.write.addNote(`${caller}-${number}`)}\n`);
    }),
  );
}

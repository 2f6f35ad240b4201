/**
 * Writes notes from several callers to the database named by the argument and prints the id of each that was acknowledged.
 * With the name of a transaction that ends the writer thread, runs that alone and prints the log.
 */
import { pino } from "pino";
import { migrations, type transactions } from "./sqlite.fixture.ts";
import { openSqlite } from "./sqlite.ts";

const [, , file = "", ending] = process.argv;
const database = await openSqlite<typeof transactions>({
  file,
  migrations,
  transactions: new URL("./sqlite.fixture.ts", import.meta.url),
  logger: pino({ enabled: ending !== undefined }),
});
if (ending === "endThread" || ending === "throwInThread") {
  setInterval(() => {}, 1_000);
  // What becomes of the write must not be what ends the process.
  await database.write[ending]().catch(() => new Promise(() => {}));
}
await Promise.all(
  Array.from({ length: 8 }, async (_, caller) => {
    for (let number = 0; ; number++) process.stdout.write(`${await database.write.addNote(`${caller}-${number}`)}\n`);
  }),
);

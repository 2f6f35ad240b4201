/** Writes notes from several callers to the database named by the argument and prints the id of each that was acknowledged. */
import { pino } from "pino";
import { migrations, type transactions } from "./sqlite.fixture.ts";
import { openSqlite } from "./sqlite.ts";

const database = await openSqlite<typeof transactions>({
  file: process.argv[2] ?? "",
  migrations,
  transactions: new URL("./sqlite.fixture.ts", import.meta.url),
  logger: pino({ enabled: false }),
});
await Promise.all(
  Array.from({ length: 8 }, async (_, caller) => {
    for (let number = 0; ; number++) process.stdout.write(`${await database.write.addNote(`${caller}-${number}`)}\n`);
  }),
);

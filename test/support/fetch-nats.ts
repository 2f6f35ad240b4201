// Fetches nats-server unless it is here, so that suites which begin at once need not each fetch it. Exits with 1,
// saying why, when it can't be had.
import { findNatsServer } from "./nats.ts";

findNatsServer().catch((error: unknown) => {
  process.stderr.write(`${error instanceof Error ? error.message : error}\n`);
  process.exitCode = 1;
});

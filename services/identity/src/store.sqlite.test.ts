import { mkdtemp, rm } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { createLogger } from "@sandgate/kit/logging";
import { describeIdentityStore } from "./store.contract.ts";
import { openSqliteStore } from "./store.sqlite.ts";

describeIdentityStore("the SQLite store of identity", async () => {
  const folder = await mkdtemp(join(tmpdir(), "sandgate-identity-"));
  const logger = createLogger({ service: "identity", level: "silent" });
  const { database, store } = await openSqliteStore({ file: join(folder, "identity.sqlite"), logger });
  return {
    store,
    outbox: database.outbox,
    async close() {
      await database.close();
      await rm(folder, { recursive: true });
    },
  };
});

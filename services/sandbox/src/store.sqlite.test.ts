import { mkdtemp } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { createLogger } from "@sandgate/kit/logging";
import { describeSandboxStore } from "./store.contract.ts";
import { openSqliteStore } from "./store.sqlite.ts";

describeSandboxStore("SQLite", async () =>
  openSqliteStore({
    file: join(await mkdtemp(join(tmpdir(), "sandgate-sandbox-")), "sandbox.sqlite"),
    logger: createLogger({ service: "sandbox", level: "silent" }),
  }),
);

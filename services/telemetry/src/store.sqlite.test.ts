import { mkdtemp } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { createLogger } from "@sandgate/kit/logging";
import { describeTelemetryStore } from "./store.contract.ts";
import { openSqliteStore } from "./store.sqlite.ts";

describeTelemetryStore("SQLite", async () =>
  openSqliteStore({
    file: join(await mkdtemp(join(tmpdir(), "sandgate-telemetry-")), "telemetry.sqlite"),
    logger: createLogger({ service: "telemetry", level: "silent" }),
  }),
);

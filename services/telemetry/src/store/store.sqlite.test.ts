import { describeOnSqlite } from "@sandgate/test/stores";
import { describeTelemetryStore } from "./store.contract.ts";
import { openSqliteStore } from "./store.sqlite.ts";

describeOnSqlite("telemetry", openSqliteStore, describeTelemetryStore);

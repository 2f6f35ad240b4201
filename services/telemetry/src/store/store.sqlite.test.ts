import { describeOnSqlite } from "@sandgate/test/stores";
import { describeAuditStore } from "./audit.contract.ts";
import { describeTelemetryStore } from "./store.contract.ts";
import { openSqliteStore } from "./store.sqlite.ts";

describeOnSqlite("telemetry", openSqliteStore, describeTelemetryStore);
describeOnSqlite("telemetry", openSqliteStore, describeAuditStore);

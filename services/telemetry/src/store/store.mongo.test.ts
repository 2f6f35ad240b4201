import { describeOnMongo } from "@sandgate/test/stores";
import { describeTelemetryStore } from "./store.contract.ts";
import { openMongoStore } from "./store.mongo.ts";

await describeOnMongo("telemetry", openMongoStore, describeTelemetryStore);

import { describeOnMongo } from "@sandgate/test/stores";
import { describeSandboxStore } from "./store.contract.ts";
import { openMongoStore } from "./store.mongo.ts";

await describeOnMongo("sandbox", openMongoStore, describeSandboxStore);

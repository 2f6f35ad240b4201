import { describeOnMongo } from "@sandgate/test/support/stores";
import { describeIdentityStore } from "./store.contract.ts";
import { openMongoStore } from "./store.mongo.ts";

await describeOnMongo("identity", openMongoStore, describeIdentityStore);

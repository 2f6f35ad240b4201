import { describeOnMongo } from "@sandgate/test/support/stores";
import { describeWorkspaceStore } from "./store.contract.ts";
import { openMongoStore } from "./store.mongo.ts";

await describeOnMongo("workspace", openMongoStore, describeWorkspaceStore);

import { describeOnMongo } from "@sandgate/test/stores";
import { describeWorkspaceStore } from "./store.contract.ts";
import { openMongoStore } from "./store.mongo.ts";

await describeOnMongo("workspace", openMongoStore, describeWorkspaceStore);

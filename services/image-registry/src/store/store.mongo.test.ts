import { describeOnMongo } from "@sandgate/test/stores";
import { describeImageRegistryStore } from "./store.contract.ts";
import { openMongoStore } from "./store.mongo.ts";

await describeOnMongo("image-registry", openMongoStore, describeImageRegistryStore);

import { describeOnSqlite } from "@sandgate/test/stores";
import { describeImageRegistryStore } from "./store.contract.ts";
import { openSqliteStore } from "./store.sqlite.ts";

describeOnSqlite("image-registry", openSqliteStore, describeImageRegistryStore);

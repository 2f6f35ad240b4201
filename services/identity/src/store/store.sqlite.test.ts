import { describeOnSqlite } from "@sandgate/test/stores";
import { describeIdentityStore } from "./store.contract.ts";
import { openSqliteStore } from "./store.sqlite.ts";

describeOnSqlite("identity", openSqliteStore, describeIdentityStore);

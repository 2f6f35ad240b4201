import { describeOnSqlite } from "@sandgate/test/stores";
import { describeSandboxStore } from "./store.contract.ts";
import { openSqliteStore } from "./store.sqlite.ts";

describeOnSqlite("sandbox", openSqliteStore, describeSandboxStore);

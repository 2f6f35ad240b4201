import { describeOnSqlite } from "@sandgate/test/stores";
import { describeWorkspaceStore } from "./store.contract.ts";
import { openSqliteStore } from "./store.sqlite.ts";

describeOnSqlite("workspace", openSqliteStore, describeWorkspaceStore);

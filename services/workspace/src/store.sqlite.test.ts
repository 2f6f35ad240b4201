import { mkdtemp, rm } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { createLogger } from "@sandgate/kit/logging";
import { describeWorkspaceStore } from "./store.contract.ts";
import { openSqliteStore } from "./store.sqlite.ts";

describeWorkspaceStore("the SQLite store of workspaces", async () => {
  const folder = await mkdtemp(join(tmpdir(), "sandgate-workspace-"));
  const logger = createLogger({ service: "workspace", level: "silent" });
  const opened = await openSqliteStore({ file: join(folder, "workspace.sqlite"), logger });
  return {
    ...opened,
    async close() {
      await opened.close();
      await rm(folder, { recursive: true });
    },
  };
});

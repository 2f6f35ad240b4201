import { mkdtemp, rm } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { createLogger } from "@sandgate/kit/logging";
import { describeImageRegistryStore } from "./store.contract.ts";
import { openSqliteStore } from "./store.sqlite.ts";

describeImageRegistryStore("the SQLite store of images and registries", async () => {
  const folder = await mkdtemp(join(tmpdir(), "sandgate-image-registry-"));
  const logger = createLogger({ service: "image-registry", level: "silent" });
  const opened = await openSqliteStore({ file: join(folder, "image-registry.sqlite"), logger });
  return {
    ...opened,
    async close() {
      await opened.close();
      await rm(folder, { recursive: true });
    },
  };
});

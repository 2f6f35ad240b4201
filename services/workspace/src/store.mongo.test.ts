import { createLogger } from "@sandgate/kit/logging";
import { probeMongo, type SharedMongo, useMongo } from "@sandgate/test/support/mongo";
import { requireServer } from "@sandgate/test/support/require";
import { afterAll, beforeAll, describe } from "vitest";
import { describeWorkspaceStore } from "./store.contract.ts";
import { openMongoStore } from "./store.mongo.ts";

describe.runIf(await requireServer("mongo", probeMongo))("MongoDB", () => {
  let mongo: SharedMongo;
  beforeAll(async () => {
    mongo = await useMongo();
  });
  afterAll(() => mongo.stop());

  describeWorkspaceStore("the MongoDB store of workspaces", async () => {
    const { url, name, drop } = await mongo.createDatabase();
    const logger = createLogger({ service: "workspace", level: "silent" });
    const opened = await openMongoStore({ url, name, logger });
    return {
      ...opened,
      async close() {
        await opened.close();
        await drop();
      },
    };
  });
});

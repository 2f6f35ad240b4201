import { createLogger } from "@sandgate/kit/logging";
import { probeMongo, type SharedMongo, useMongo } from "@sandgate/test/support/mongo";
import { requireServer } from "@sandgate/test/support/require";
import { afterAll, beforeAll, describe } from "vitest";
import { describeIdentityStore } from "./store.contract.ts";
import { openMongoStore } from "./store.mongo.ts";

describe.runIf(await requireServer("mongo", probeMongo))("MongoDB", () => {
  let mongo: SharedMongo;
  beforeAll(async () => {
    mongo = await useMongo();
  });
  afterAll(() => mongo.stop());

  describeIdentityStore("the MongoDB store of identity", async () => {
    const { url, name, drop } = await mongo.createDatabase();
    const logger = createLogger({ service: "identity", level: "silent" });
    const { database, store } = await openMongoStore({ url, name, logger });
    return {
      store,
      outbox: database.outbox,
      async close() {
        await database.close();
        await drop();
      },
    };
  });
});

import { setTimeout as delay } from "node:timers/promises";
import { WorkspaceService } from "@sandgate/proto/workspace/v1/workspace";
import { MongoClient } from "mongodb";
import { callOf } from "../rpc/context.ts";
import { runService } from "./process.ts";

/** A service without data of its own, so that its process can be seen by itself. */
await runService({
  name: "workspace",
  settings: {},
  readSettings: () => ({}),
  open: async ({ logger, database }) => {
    if (process.env.TEST_NEEDS_DATABASE && database.kind === "mongodb") {
      await new MongoClient(database.url, { serverSelectionTimeoutMS: 100 }).connect();
    }
    return {
      routes({ service }) {
        service(WorkspaceService, {
          async createWorkspace({ name }, context) {
            if (name === "fail") {
              process.emitWarning("a warning of the handler's");
              throw new Error("a fault of the handler's");
            }
            logger.info({ request_id: callOf(context).requestId }, "creating");
            await delay(1_000);
            return { workspace: { name } };
          },
          getMembership: () => ({ workspaceExists: true }),
        });
      },
      async start() {},
      dependencies: async () => ({ database: database.kind === "mongodb" ? `ok, ${database.name}` : "wrong" }),
      async drain() {
        if (process.env.TEST_FAILS_TO_DRAIN) throw new Error("a task can't be stopped");
      },
      async close() {
        logger.info("closed");
      },
    };
  },
});

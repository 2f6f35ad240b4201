import { stateOf } from "@sandgate/kit/base/dependencies";
import { startPeriodicTask } from "@sandgate/kit/base/periodic-task";
import { defineService } from "@sandgate/kit/process/service";
import { WorkspaceService } from "@sandgate/proto/workspace/v1/workspace";
import { consumeEvents } from "./consumers.ts";
import { startAnnouncements } from "./domain/deletions.ts";
import { createHandlers } from "./handlers.ts";
import { workspaceSettings } from "./settings.ts";

/** How often workspaces are looked for that an older version created, during an upgrade. */
const chargingMs = 10_000;

/** The service that owns workspaces, their members and roles. */
export const workspaceService = defineService({
  name: "workspace",
  settings: workspaceSettings,
  stores: { sqlite: () => import("./store/store.sqlite.ts"), mongodb: () => import("./store/store.mongo.ts") },
  open(context) {
    const { store, logger } = context;
    return {
      routes(router) {
        router.service(WorkspaceService, createHandlers(context));
      },
      async start() {
        const charges = startPeriodicTask({
          what: "charge workspaces that an older version made",
          everyMs: chargingMs,
          logger,
          work: () => store.chargeFirstOwners(),
        });
        return [await consumeEvents(context), startAnnouncements(context), charges];
      },
      async dependencies() {
        return { database: await stateOf(store.oldestOpenDeletion()) };
      },
    };
  },
});

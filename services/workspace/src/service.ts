import type { ServiceImpl } from "@connectrpc/connect";
import { stateOf } from "@sandgate/kit/base/dependencies";
import { defineService } from "@sandgate/kit/process/service";
import { WorkspaceService } from "@sandgate/proto/workspace/v1/workspace";
import { consumeEvents } from "./consumers.ts";
import { createMemberHandlers } from "./handlers/members.ts";
import { createWorkspaceHandlers } from "./handlers/workspaces.ts";
import { workspaceSettings } from "./settings.ts";
import { startAnnouncements, startForgetting } from "./usecases/deletions.ts";

/** The service that owns workspaces, their members and roles. */
export const workspaceService = defineService({
  name: "workspace",
  settings: workspaceSettings,
  stores: { sqlite: () => import("./store/store.sqlite.ts"), mongodb: () => import("./store/store.mongo.ts") },
  open(context) {
    const { store } = context;
    return {
      routes(router) {
        router.service(WorkspaceService, {
          ...createWorkspaceHandlers(context),
          ...createMemberHandlers(context),
        } satisfies ServiceImpl<typeof WorkspaceService>);
      },
      async start() {
        return [await consumeEvents(context), startAnnouncements(context), startForgetting(context)];
      },
      async dependencies() {
        return { database: await stateOf(store.deletions.findOldestOpen()) };
      },
    };
  },
});

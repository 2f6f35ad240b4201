import { anyUnpack } from "@bufbuild/protobuf/wkt";
import type { EventBus } from "@sandgate/kit/events/bus";
import type { BackgroundTask } from "@sandgate/kit/process/service";
import { WorkspaceTakenOverSchema } from "@sandgate/proto/workspace/v1/workspace_events";
import type { SandboxStore } from "./store/store.ts";

/** Follows workspaces that are taken over, since their sandboxes count towards the quota of whoever took them over. */
export function consumeEvents(o: {
  bus: Pick<EventBus, "consume">;
  store: Pick<SandboxStore, "quotaOwners">;
}): Promise<BackgroundTask> {
  return o.bus.consume({
    // The name of the consumer on the bus, which knows by it what was handled.
    consumer: "sandbox-charges",
    subjects: ["sandgate.workspace.workspace.taken_over.v1"],
    async handle(event) {
      const takenOver = event.payload && anyUnpack(event.payload, WorkspaceTakenOverSchema);
      if (!takenOver) throw new Error(`event ${event.eventId} isn't a WorkspaceTakenOver`);
      const { workspaceId, userId } = takenOver;
      await o.store.quotaOwners.assign(workspaceId, { userId, since: Number(event.entityVersion) });
    },
  });
}

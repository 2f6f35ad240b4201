import { anyUnpack, timestampDate } from "@bufbuild/protobuf/wkt";
import type { EventBus } from "@sandgate/kit/events/bus";
import type { BackgroundTask } from "@sandgate/kit/process/service";
import { MemberRemovedSchema, WorkspaceTakenOverSchema } from "@sandgate/proto/workspace/v1/workspace_events";
import type { SandboxStore } from "./store/store.ts";

/** Follows workspaces that are taken over, and members who leave. */
export async function consumeEvents(o: {
  bus: Pick<EventBus, "consume">;
  store: Pick<SandboxStore, "quotaOwners" | "previews">;
}): Promise<BackgroundTask> {
  const tasks = await Promise.all([
    // The sandboxes of a workspace count towards the quota of whoever took it over.
    o.bus.consume({
      // The name of the consumer on the bus, which knows by it what was handled.
      consumer: "sandbox-charges",
      subjects: ["sandgate.workspace.workspace.taken_over.v1"],
      async handle(event) {
        const takenOver = event.payload && anyUnpack(event.payload, WorkspaceTakenOverSchema);
        if (!takenOver) throw new Error(`event ${event.eventId} isn't a WorkspaceTakenOver`);
        const { workspaceId, userId } = takenOver;
        await o.store.quotaOwners.assign(workspaceId, { userId, since: Number(event.entityVersion) });
      },
    }),
    // A preview ends with its creator's membership, and doesn't come back with it.
    o.bus.consume({
      consumer: "sandbox-previews",
      subjects: ["sandgate.workspace.member.removed.v1"],
      async handle(event) {
        const removed = event.payload && anyUnpack(event.payload, MemberRemovedSchema);
        if (!removed || !event.occurredAt) throw new Error(`event ${event.eventId} isn't a MemberRemoved`);
        await o.store.previews.deleteOfUser(removed.workspaceId, removed.userId, timestampDate(event.occurredAt));
      },
    }),
  ]);
  return {
    async stop() {
      await Promise.all(tasks.map((task) => task.stop()));
    },
  };
}

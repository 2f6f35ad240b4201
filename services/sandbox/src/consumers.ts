import { setTimeout as delay } from "node:timers/promises";
import { anyUnpack, timestampDate } from "@bufbuild/protobuf/wkt";
import { addMs } from "@sandgate/kit/base/time";
import type { EventBus } from "@sandgate/kit/events/bus";
import type { BackgroundTask } from "@sandgate/kit/process/service";
import { UserDisabledSchema } from "@sandgate/proto/identity/v1/identity_events";
import { MemberRemovedSchema, WorkspaceTakenOverSchema } from "@sandgate/proto/workspace/v1/workspace_events";
import type { SandboxStore } from "./store/store.ts";

/** Longer than facades go on taking what a user has signed in with, once the user is disabled. */
const lastCallsMs = 2_000;

/** Follows workspaces that are taken over, members who leave, and users who are disabled. */
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
    // And with its creator's account, in all workspaces.
    o.bus.consume({
      consumer: "sandbox-users",
      subjects: ["sandgate.identity.user.disabled.v1"],
      async handle(event) {
        const disabled = event.payload && anyUnpack(event.payload, UserDisabledSchema);
        if (!disabled || !event.occurredAt) throw new Error(`event ${event.eventId} isn't a UserDisabled`);
        const lastCallAt = addMs(timestampDate(event.occurredAt), lastCallsMs);
        const end = () => o.store.previews.deleteOfUser(undefined, disabled.userId, lastCallAt);
        // The clocks of two machines may differ.
        const waitMs = Math.min(lastCallAt.getTime() - Date.now(), lastCallsMs);
        await end();
        if (waitMs <= 0) return;
        // Then those that are made meanwhile.
        await delay(waitMs);
        await end();
      },
    }),
  ]);
  return {
    async stop() {
      await Promise.all(tasks.map((task) => task.stop()));
    },
  };
}

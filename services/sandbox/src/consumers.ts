import { setTimeout as delay } from "node:timers/promises";
import { addMs } from "@sandgate/kit/base/time";
import type { EventBus } from "@sandgate/kit/events/bus";
import { payloadOf, timeOf } from "@sandgate/kit/events/payload";
import type { BackgroundTask } from "@sandgate/kit/process/service";
import type { Event } from "@sandgate/proto/common/v1/event";
import { UserDisabledSchema } from "@sandgate/proto/identity/v1/identity_events";
import { MemberRemovedSchema, WorkspaceTakenOverSchema } from "@sandgate/proto/workspace/v1/workspace_events";
import type { SandboxStore } from "./store/store.ts";

/** Longer than facades go on letting a user in, once the user is disabled or no longer a member. */
const lastCallsMs = 2_000;

/** Follows workspaces that are taken over, members who leave, and users who are disabled. */
export async function consumeEvents(o: {
  bus: Pick<EventBus, "consume">;
  store: Pick<SandboxStore, "quotaOwners" | "previews">;
}): Promise<BackgroundTask> {
  /** Ends the user's previews in a workspace or in all, also those made by calls that a facade still let in. */
  async function endPreviews(workspaceId: string | undefined, userId: string, event: Event): Promise<void> {
    const lastCallAt = addMs(timeOf(event), lastCallsMs);
    const end = () => o.store.previews.deleteOfUser(workspaceId, userId, lastCallAt);
    // The clocks of two machines may differ.
    const waitMs = Math.min(lastCallAt.getTime() - Date.now(), lastCallsMs);
    await end();
    if (waitMs <= 0) return;
    // Then those that are made meanwhile.
    await delay(waitMs);
    await end();
  }

  const tasks = await Promise.all([
    // The sandboxes of a workspace count towards the quota of whoever took it over.
    o.bus.consume({
      // The name of the consumer on the bus, which knows by it what was handled.
      consumer: "sandbox-charges",
      subjects: ["sandgate.workspace.workspace.taken_over.v1"],
      async handle(event) {
        const { workspaceId, userId } = payloadOf(event, WorkspaceTakenOverSchema);
        await o.store.quotaOwners.assign(workspaceId, { userId, since: Number(event.entityVersion) });
      },
    }),
    // A preview ends with its creator's membership, and doesn't come back with it.
    o.bus.consume({
      consumer: "sandbox-previews",
      subjects: ["sandgate.workspace.member.removed.v1"],
      async handle(event) {
        const { workspaceId, userId } = payloadOf(event, MemberRemovedSchema);
        await endPreviews(workspaceId, userId, event);
      },
    }),
    // And with its creator's account, in all workspaces.
    o.bus.consume({
      consumer: "sandbox-users",
      subjects: ["sandgate.identity.user.disabled.v1"],
      async handle(event) {
        const { userId } = payloadOf(event, UserDisabledSchema);
        await endPreviews(undefined, userId, event);
      },
    }),
  ]);
  return {
    async stop() {
      await Promise.all(tasks.map((task) => task.stop()));
    },
  };
}

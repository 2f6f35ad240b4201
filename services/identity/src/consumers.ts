import type { EventBus } from "@sandgate/kit/events/bus";
import { payloadOf, timeOf } from "@sandgate/kit/events/payload";
import type { BackgroundTask } from "@sandgate/kit/process/service";
import { MemberAddedSchema } from "@sandgate/proto/workspace/v1/workspace_events";
import type { Addition } from "./usecases/membership-notices.ts";

/** Follows who is added to workspaces, since they get a mail. An event that comes again leads to no other mail. */
export function consumeEvents(o: {
  bus: Pick<EventBus, "consume">;
  noticeMember: (addition: Addition) => Promise<void>;
}): Promise<BackgroundTask> {
  return o.bus.consume({
    consumer: "identity-memberships",
    subjects: ["sandgate.workspace.member.added.v1"],
    async handle(event) {
      const { workspaceId, userId } = payloadOf(event, MemberAddedSchema);
      const addition = { workspaceId, userId, addedById: event.actor?.userId };
      await o.noticeMember({ id: event.eventId, at: timeOf(event), ...addition });
    },
  });
}

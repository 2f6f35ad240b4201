import { timestampDate } from "@bufbuild/protobuf/wkt";
import type { Logger } from "@sandgate/kit/base/logging";
import type { EventBus } from "@sandgate/kit/events/bus";
import { causeOf } from "@sandgate/kit/events/outbox";
import type { BackgroundTask } from "@sandgate/kit/process/service";
import type { WorkspaceStore } from "./store/store.ts";
import { endMemberships } from "./usecases/deleted-accounts.ts";

/**
 * Consumes deletions of users and the purges of deleted workspaces. Both handlers are idempotent: each brings about a
 * final state, so an event that arrives twice, or late, finds nothing left to do.
 */
export async function consumeEvents(o: {
  store: WorkspaceStore;
  bus: EventBus;
  logger: Logger;
}): Promise<BackgroundTask> {
  const users = await o.bus.consume({
    consumer: "workspace-users",
    subjects: ["sandgate.identity.user.deleted.v1"],
    handle: (event) => endMemberships({ ...o, cause: causeOf(event) }, event.entityId),
  });
  const purges = await o.bus.consume({
    consumer: "workspace-purges",
    subjects: ["sandgate.*.workspace.workspace_purged.v1"],
    async handle({ subject, entityId, occurredAt }) {
      const [, service = ""] = subject.split(".");
      await o.store.deletions.recordPurge(entityId, service, occurredAt ? timestampDate(occurredAt) : new Date());
    },
  });
  return {
    async stop() {
      await Promise.all([users.stop(), purges.stop()]);
    },
  };
}

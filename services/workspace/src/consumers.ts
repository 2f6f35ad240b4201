import { timestampDate } from "@bufbuild/protobuf/wkt";
import type { EventBus } from "@sandgate/kit/events/bus";
import { Role } from "@sandgate/proto/common/v1/access";
import { deleteWorkspace } from "./domain/deletions.ts";
import { commit } from "./domain/retry-stale.ts";
import { memberRemoved, signalMembership } from "./events.ts";
import type { WorkspaceStore } from "./store/store.ts";

interface Parts {
  store: WorkspaceStore;
  bus: EventBus;
}

/** Memberships of a deleted user ended in one go. */
const batch = 100;

/**
 * Reads the end of users and of purges. Neither handler keeps an inbox: each brings about a state that is final, so an
 * event that comes again, or late, finds nothing left to do.
 */
export async function consumeEvents(parts: Parts): Promise<{ stop(): Promise<void> }> {
  const users = await parts.bus.consume({
    consumer: "workspace-users",
    subjects: ["sandgate.identity.user.deleted.v1"],
    handle: (event) => removeUser(parts, event.entityId),
  });
  const purges = await parts.bus.consume({
    consumer: "workspace-purges",
    subjects: ["sandgate.*.workspace.workspace_purged.v1"],
    async handle({ subject, entityId, occurredAt }) {
      const [, service = ""] = subject.split(".");
      await parts.store.recordPurge(entityId, service, occurredAt ? timestampDate(occurredAt) : new Date());
    },
  });
  return {
    async stop() {
      await Promise.all([users.stop(), purges.stop()]);
    },
  };
}

/** Ends all memberships of a user whose account is gone; a workspace that loses its last owner is deleted. */
async function removeUser({ store, bus }: Parts, userId: string): Promise<void> {
  await store.markDeparted(userId, new Date());
  for (;;) {
    const workspaces = await store.listWorkspaces(userId, undefined, batch);
    for (const { id } of workspaces) {
      await commit(async () => {
        const view = await store.findMember(id, userId, userId);
        if (view?.member === undefined) return { outcome: "done", value: undefined };
        const { workspace, member, owners } = view;
        if (member.role === Role.OWNER && owners <= 1) {
          return { outcome: await deleteWorkspace({ store, bus }, workspace), value: undefined };
        }
        const events = [memberRemoved(undefined, id, workspace.version + 1, userId)];
        const outcome = await store.removeMember(id, workspace.version, userId, events);
        if (outcome === "done") signalMembership(bus, id, userId);
        return { outcome, value: undefined };
      });
    }
    if (workspaces.length < batch) return;
  }
}

import { DomainError } from "@sandgate/kit/base/domain-error";
import { isUuid } from "@sandgate/kit/base/ids";
import type { EventBus } from "@sandgate/kit/events/bus";
import { requireRole } from "@sandgate/kit/rpc/access";
import { asFacade, type RoleName } from "@sandgate/kit/rpc/context";
import { Role } from "@sandgate/proto/common/v1/access";
import type { Clients } from "./clients.ts";
import { FreshCache } from "./fresh-cache.ts";
import type { SignedIn } from "./signed-in.ts";

interface Membership {
  workspaceExists: boolean;
  /** Role.UNSPECIFIED: not a member. */
  role: Role;
}

export interface WorkspaceScope {
  /**
   * The signed-in user's role in the workspace. Throws WORKSPACE_FORBIDDEN when there is none, or for a workspace named
   * in the path WORKSPACE_NOT_FOUND when it doesn't exist, and INSUFFICIENT_ROLE below `least`.
   */
  enter(
    signedIn: SignedIn,
    workspaceId: string,
    o: { inPath: boolean; least: Role; requestId: string },
  ): Promise<RoleName>;
  close(): void;
}

const nowhere: Membership = { workspaceExists: false, role: Role.UNSPECIFIED };

/** A membership is remembered for a second at most, and forgotten earlier when workspace says that it changed. */
export function createWorkspaceScope(o: { clients: Clients; bus: EventBus }): WorkspaceScope {
  const memberships = new FreshCache<Membership>({ maxAgeMs: 1_000 });
  const unwatch = o.bus.watch("workspace.membership", (body) => {
    const [workspaceId = "", userId = "*"] = body.split(" ");
    memberships.forget(userId === "*" ? (key) => key.startsWith(`${workspaceId} `) : (key) => key === body);
  });

  async function readMembership(workspaceId: string, userId: string, requestId: string): Promise<Membership> {
    const answer = await o.clients.workspace.getMembership({ workspaceId, userId }, asFacade({ requestId }));
    return { workspaceExists: answer.workspaceExists, role: answer.role };
  }

  return {
    async enter({ user, boundTo }, workspaceId, { inPath, least, requestId }) {
      if (boundTo !== undefined && boundTo !== workspaceId) {
        throw new DomainError("WORKSPACE_FORBIDDEN", "The API token is bound to another workspace.", {
          hint: "Use a token that is bound to this workspace or to none.",
        });
      }
      // What can't be a workspace's id is neither asked about nor remembered, however long it is.
      const { workspaceExists, role } = isUuid(workspaceId)
        ? await memberships.get(`${workspaceId} ${user.id}`, () => readMembership(workspaceId, user.id, requestId))
        : nowhere;
      if (!workspaceExists && inPath) throw new DomainError("WORKSPACE_NOT_FOUND", "There is no such workspace.");
      return requireRole(role, least);
    },
    close: unwatch,
  };
}

import { DomainError } from "@sandgate/kit/base/domain-error";
import { isUuid } from "@sandgate/kit/base/ids";
import type { EventBus } from "@sandgate/kit/events/bus";
import { requireLimitedRole } from "@sandgate/kit/rpc/access";
import { asFacade, type RoleName, type UserCaller } from "@sandgate/kit/rpc/context";
import { Role } from "@sandgate/proto/common/v1/access";
import type { Clients } from "../base/clients.ts";
import type { SignedIn } from "../base/signed-in.ts";
import { LoadingCache } from "./loading-cache.ts";

interface Membership {
  workspaceExists: boolean;
  /** Role.UNSPECIFIED: not a member. */
  role: Role;
}

export interface WorkspaceScope {
  /**
   * The signed-in user in the workspace, with the role of the credential there. Throws WORKSPACE_FORBIDDEN for somebody
   * who is not a member, INSUFFICIENT_ROLE for a role below `least`, and WORKSPACE_NOT_FOUND when a workspace in the
   * path doesn't exist.
   */
  enter(
    signedIn: SignedIn,
    workspaceId: string,
    o: { inPath: boolean; least: Role; requestId: string },
  ): Promise<UserCaller>;
  /** Whether somebody who isn't signed in here is a member. */
  isMember(workspaceId: string, userId: string, requestId: string): Promise<boolean>;
  close(): void;
}

const noMembership: Membership = { workspaceExists: false, role: Role.UNSPECIFIED };

/** Cached memberships are at most a second old; workspace's signals drop them earlier. */
export function createWorkspaceScope(o: {
  clients: Pick<Clients, "workspace">;
  bus: Pick<EventBus, "watch">;
}): WorkspaceScope {
  const memberships = new LoadingCache<Membership>({ maxAgeMs: 1_000 });
  const unwatch = o.bus.watch("workspace.membership", (body) => {
    const [workspaceId = "", userId = "*"] = body.split(" ");
    memberships.forget(userId === "*" ? (key) => key.startsWith(`${workspaceId} `) : (key) => key === body);
  });

  /**
   * The last caller made for each user. The next request in the same workspace gets it again, and so its signed token.
   */
  const lastCallers = new WeakMap<UserCaller, UserCaller>();
  function callerIn(user: UserCaller, workspaceId: string, role: RoleName): UserCaller {
    const last = lastCallers.get(user);
    if (last?.workspaceId === workspaceId && last.role === role) return last;
    const caller = { ...user, workspaceId, role };
    lastCallers.set(user, caller);
    return caller;
  }

  function findMembership(workspaceId: string, userId: string, requestId: string): Promise<Membership> {
    return memberships.get(`${workspaceId} ${userId}`, async () => {
      const answer = await o.clients.workspace.getMembership({ workspaceId, userId }, asFacade({ requestId }));
      return { workspaceExists: answer.workspaceExists, role: answer.role };
    });
  }

  return {
    async enter({ user, boundTo }, workspaceId, { inPath, least, requestId }) {
      if (boundTo !== undefined && boundTo !== workspaceId) {
        throw new DomainError("WORKSPACE_FORBIDDEN", "The API token is bound to another workspace.", {
          hint: "Use a token that is bound to this workspace or to none.",
        });
      }
      // An id that no workspace can have is neither looked up nor cached, however long it is.
      const { workspaceExists, role } = isUuid(workspaceId)
        ? await findMembership(workspaceId, user.id, requestId)
        : noMembership;
      if (!workspaceExists && inPath) throw new DomainError("WORKSPACE_NOT_FOUND", "There is no such workspace.");
      return callerIn(user, workspaceId, requireLimitedRole(role, user, least));
    },
    async isMember(workspaceId, userId, requestId) {
      return (await findMembership(workspaceId, userId, requestId)).role !== Role.UNSPECIFIED;
    },
    close: unwatch,
  };
}

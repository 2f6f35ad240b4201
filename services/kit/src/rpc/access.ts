import { type DescMethod, getOption, hasOption } from "@bufbuild/protobuf";
import { type Access, access as accessOption, Role } from "@sandgate/proto/common/v1/access";
import { DomainError } from "../base/domain-error.ts";
import type { Caller, RoleName } from "./context.ts";

const ranks: Record<RoleName, Role> = { member: Role.MEMBER, admin: Role.ADMIN, owner: Role.OWNER };

const known = new Map<DescMethod, Access | undefined>();

/** The access rule that stands on a method in its proto; undefined without one. */
export function accessOf(method: DescMethod): Access | undefined {
  if (!known.has(method))
    known.set(method, hasOption(method, accessOption) ? getOption(method, accessOption) : undefined);
  return known.get(method);
}

/**
 * Throws unless `caller` may call `method`: CALLER_NOT_ALLOWED for the calling service and for a method without a rule,
 * UNAUTHENTICATED without a user, FORBIDDEN for an API token where a session is needed, WORKSPACE_REQUIRED without a
 * workspace, INSUFFICIENT_ROLE below the least role.
 */
export function authorize(method: DescMethod, caller: Caller): void {
  const access = accessOf(method);
  if (!access?.callers.includes(caller.service)) {
    throw new DomainError(
      "CALLER_NOT_ALLOWED",
      `${caller.service} may not call ${method.parent.typeName}.${method.name}.`,
    );
  }
  const needsRole = access.leastRole !== Role.UNSPECIFIED;
  if (!access.user && !needsRole && !access.sessionOnly) return;
  if (!caller.user) throw new DomainError("UNAUTHENTICATED", "Sign in first.");
  if (access.sessionOnly && caller.user.credential !== "session") {
    throw new DomainError("FORBIDDEN", "This needs a signed-in session; an API token is not enough.");
  }
  if (!needsRole) return;
  if (!caller.user.workspaceId) throw new DomainError("WORKSPACE_REQUIRED", "Name a workspace.");
  if (!caller.user.role || ranks[caller.user.role] < access.leastRole) {
    const least = Object.entries(ranks).find(([, rank]) => rank === access.leastRole)?.[0];
    throw new DomainError("INSUFFICIENT_ROLE", `This needs the role ${least} in the workspace.`);
  }
}

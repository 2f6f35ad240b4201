import { type DescMethod, getOption, hasOption } from "@bufbuild/protobuf";
import { type Access, access as accessOption, Credential, Role } from "@sandgate/proto/common/v1/access";
import { DomainError } from "../base/domain-error.ts";
import type { Caller, CredentialKind, RoleName, UserCaller } from "./context.ts";

const roles: Record<RoleName, Role> = { member: Role.MEMBER, admin: Role.ADMIN, owner: Role.OWNER };

const roleNames: Record<Role, RoleName | undefined> = {
  [Role.UNSPECIFIED]: undefined,
  [Role.MEMBER]: "member",
  [Role.ADMIN]: "admin",
  [Role.OWNER]: "owner",
};

export function isRoleName(value: unknown): value is RoleName {
  return typeof value === "string" && Object.hasOwn(roles, value);
}

/** The protobuf value of a role's name. */
export function toRole(name: RoleName): Role {
  return roles[name];
}

/** The name of a role; undefined for Role.UNSPECIFIED, the role of somebody who isn't a member. */
export function toRoleName(role: Role): RoleName | undefined {
  return roleNames[role];
}

/** The protobuf value of a kind of credential. */
export function toCredential(kind: CredentialKind): Credential {
  return kind === "session" ? Credential.SESSION : Credential.API_TOKEN;
}

/** The kind of a credential; undefined for Credential.UNSPECIFIED, when nobody was signed in. */
export function toCredentialKind(credential: Credential): CredentialKind | undefined {
  if (credential === Credential.UNSPECIFIED) return undefined;
  return credential === Credential.SESSION ? "session" : "api_token";
}

/** The role that a credential has of its user's: no higher one than its limit. */
export function limitRole(role: Role, { roleLimit }: Pick<UserCaller, "roleLimit">): Role {
  const limit = roleLimit === undefined ? role : toRole(roleLimit);
  return role < limit ? role : limit;
}

const known = new Map<DescMethod, Access | undefined>();

/** The access rule of a method in its proto; undefined without one. */
export function accessOf(method: DescMethod): Access | undefined {
  if (!known.has(method))
    known.set(method, hasOption(method, accessOption) ? getOption(method, accessOption) : undefined);
  return known.get(method);
}

/**
 * The name of a role that is `least` or higher. Throws WORKSPACE_FORBIDDEN for somebody who is not a member
 * (Role.UNSPECIFIED), INSUFFICIENT_ROLE for a lower role.
 */
export function requireRole(role: Role, least: Role): RoleName {
  const name = toRoleName(role);
  if (name === undefined) {
    throw new DomainError("WORKSPACE_FORBIDDEN", "You are not a member of this workspace.");
  }
  if (role < least) {
    throw new DomainError("INSUFFICIENT_ROLE", `This needs the ${toRoleName(least)} role; yours is ${name}.`, {
      hint: `Ask ${least === Role.OWNER ? "an owner" : "an admin or an owner"} of the workspace to do it, or to raise your role.`,
    });
  }
  return name;
}

/**
 * The role that a credential has of its user's, if it is `least` or higher. Throws what `requireRole` throws, and
 * INSUFFICIENT_ROLE for an API token whose limit is lower.
 */
export function requireLimitedRole(role: Role, user: Pick<UserCaller, "roleLimit">, least: Role): RoleName {
  const limited = limitRole(role, user);
  if (limited >= least || role < least) return requireRole(limited, least);
  throw new DomainError(
    "INSUFFICIENT_ROLE",
    `This needs the ${toRoleName(least)} role; the API token's is ${user.roleLimit}.`,
    {
      hint: "Use a session, or an API token with a higher role.",
    },
  );
}

/**
 * Requires the role that the method's access rule names, for a caller whose role may have changed since the call began: a
 * change checks again with the role that it commits on. Throws what `requireRole` throws.
 */
export function requireRoleFor(method: DescMethod, role: Role): RoleName {
  return requireRole(role, accessOf(method)?.leastRole ?? Role.OWNER);
}

/**
 * Throws unless `caller` may call `method`: CALLER_NOT_ALLOWED for the calling service and for a method without a rule,
 * UNAUTHENTICATED without a user, FORBIDDEN for an API token where a session is needed and for others than operators where
 * one is, WORKSPACE_REQUIRED without a workspace, and what `requireRole` throws.
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
  if (!access.user && !needsRole && !access.sessionOnly && !access.operator) return;
  if (!caller.user) throw new DomainError("UNAUTHENTICATED", "Sign in first.");
  if (access.sessionOnly) requireSession(caller.user);
  if (access.operator) requireOperator(caller.user);
  if (!needsRole) return;
  if (!caller.user.workspaceId) throw new DomainError("WORKSPACE_REQUIRED", "Name a workspace.");
  requireRole(caller.user.role ? toRole(caller.user.role) : Role.UNSPECIFIED, access.leastRole);
}

/** Throws FORBIDDEN for others than operators. */
export function requireOperator(user: UserCaller): void {
  if (user.operator) return;
  throw new DomainError("FORBIDDEN", "Only an operator of this server may do this.", {
    hint: "Ask an operator of this server.",
  });
}

/** Throws FORBIDDEN for an API token. */
export function requireSession(user: UserCaller): void {
  if (user.credential === "session") return;
  throw new DomainError("FORBIDDEN", "This needs a session access token; an API token is not enough.", {
    hint: "Sign in with POST /auth/login and use its access token here.",
  });
}

import { type DescMethod, getOption, hasOption } from "@bufbuild/protobuf";
import { type Access, access as accessOption, Credential, Permission, Role } from "@sandgate/proto/common/v1/access";
import { DomainError } from "../base/domain-error.ts";
import {
  type Caller,
  type CredentialKind,
  facade,
  type PermissionName,
  type RoleName,
  type UserCaller,
} from "./context.ts";

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

/** Returns the protobuf value of a role. */
export function toRole(name: RoleName): Role {
  return roles[name];
}

/** Returns the name of a role; undefined for Role.UNSPECIFIED, the role of a user who isn't a member. */
export function toRoleName(role: Role): RoleName | undefined {
  return roleNames[role];
}

const permissions: Record<PermissionName, Permission> = {
  read: Permission.READ,
  provision: Permission.PROVISION,
  use: Permission.USE,
  manage: Permission.MANAGE,
};

/** All permissions, in the contract's order. */
// The keys of a record are of its key's type.
export const permissionNames = Object.keys(permissions) as readonly PermissionName[];

export function isPermissionName(value: unknown): value is PermissionName {
  return typeof value === "string" && Object.hasOwn(permissions, value);
}

/** Returns the protobuf value of a permission. */
export function toPermission(name: PermissionName): Permission {
  return permissions[name];
}

/** Returns the name of a permission; undefined for Permission.UNSPECIFIED, and for one that this version doesn't know. */
export function toPermissionName(permission: Permission): PermissionName | undefined {
  return permissionNames.find((name) => permissions[name] === permission);
}

/** Returns the names of permissions, but of those that this version doesn't know. */
export function toPermissionNames(given: readonly Permission[]): PermissionName[] {
  return given.map(toPermissionName).filter((name) => name !== undefined);
}

/** Returns the protobuf value of a kind of credential. */
export function toCredential(kind: CredentialKind): Credential {
  return kind === "session" ? Credential.SESSION : Credential.API_TOKEN;
}

/** Returns the kind of a credential; undefined for Credential.UNSPECIFIED, when nobody was signed in. */
export function toCredentialKind(credential: Credential): CredentialKind | undefined {
  if (credential === Credential.UNSPECIFIED) return undefined;
  return credential === Credential.SESSION ? "session" : "api_token";
}

/** Returns the role that a credential has: its user's, but none above its limit. */
export function limitRole(role: Role, { roleLimit }: Pick<UserCaller, "roleLimit">): Role {
  const limit = roleLimit === undefined ? role : toRole(roleLimit);
  return role < limit ? role : limit;
}

const known = new Map<DescMethod, Access | undefined>();

/** Returns the access rule of a method's proto; undefined if it has none. */
export function accessOf(method: DescMethod): Access | undefined {
  if (!known.has(method))
    known.set(method, hasOption(method, accessOption) ? getOption(method, accessOption) : undefined);
  return known.get(method);
}

/**
 * Returns the name of the role if it is `least` or higher. Throws WORKSPACE_FORBIDDEN for a user who is not a member
 * (Role.UNSPECIFIED), and INSUFFICIENT_ROLE for a lower role.
 */
export function requireRole(role: Role, least: Role): RoleName {
  const name = toRoleName(role);
  if (name === undefined) {
    throw new DomainError("WORKSPACE_FORBIDDEN", "You are not a member of this workspace.");
  }
  if (role < least) {
    throw new DomainError("INSUFFICIENT_ROLE", `This requires the ${toRoleName(least)} role, and yours is ${name}.`, {
      hint: `Ask ${least === Role.OWNER ? "an owner" : "an admin or an owner"} of the workspace to do it, or to raise your role.`,
    });
  }
  return name;
}

/**
 * Returns the role that a credential has, if it is `least` or higher. Throws what `requireRole` throws, and
 * INSUFFICIENT_ROLE for an API token with a lower limit.
 */
export function requireLimitedRole(role: Role, user: Pick<UserCaller, "roleLimit">, least: Role): RoleName {
  const limited = limitRole(role, user);
  if (limited >= least || role < least) return requireRole(limited, least);
  throw new DomainError(
    "INSUFFICIENT_ROLE",
    `This requires the ${toRoleName(least)} role, and the API token's is ${user.roleLimit}.`,
    {
      hint: "Use a session, or an API token with a higher role.",
    },
  );
}

/**
 * Requires the role in the method's access rule of a caller whose role may have changed since the call began: a
 * transaction checks the role that it has read. Throws what `requireRole` throws.
 */
export function requireRoleFor(method: DescMethod, role: Role): RoleName {
  return requireRole(role, accessOf(method)?.leastRole ?? Role.OWNER);
}

/**
 * Throws unless `caller` may call `method`: CALLER_NOT_ALLOWED if the calling service may not or the method has no
 * rule, UNAUTHENTICATED without a user, FORBIDDEN for an API token where a session is required and for a user who is no
 * operator where one is required, WORKSPACE_REQUIRED without a workspace, what `requireRole` throws, and FORBIDDEN for
 * an API token that lacks the permission.
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
  if (needsRole) {
    if (!caller.user.workspaceId) throw new DomainError("WORKSPACE_REQUIRED", "The call names no workspace.");
    requireRole(caller.user.role ? toRole(caller.user.role) : Role.UNSPECIFIED, access.leastRole);
  }
  if (access.permission !== Permission.UNSPECIFIED || caller.service === facade) {
    requirePermission(caller.user, access);
  }
}

/** Throws FORBIDDEN for a user who is no operator. */
export function requireOperator(user: UserCaller): void {
  if (user.operator) return;
  throw new DomainError("FORBIDDEN", "Only an operator of this server can do this.", {
    hint: "Ask an operator of this server.",
  });
}

/** Throws FORBIDDEN for an API token. */
export function requireSession(user: UserCaller): void {
  if (user.credential === "session") return;
  throw new DomainError("FORBIDDEN", "This requires a session access token; an API token is not enough.", {
    hint: "Sign in with POST /auth/login and use its access token here.",
  });
}

/**
 * Throws FORBIDDEN for an API token that was made for other permissions than the method's: for any at all, if it names
 * none. A method for any permission asks for nothing.
 */
export function requirePermission(
  user: UserCaller,
  { permission, anyPermission }: Pick<Access, "permission" | "anyPermission">,
): void {
  if (user.permissions === undefined || anyPermission) return;
  const name = toPermissionName(permission);
  if (name !== undefined && user.permissions.includes(name)) return;
  const needed = name === undefined ? "all permissions" : `the ${name} permission`;
  throw new DomainError("FORBIDDEN", `This requires ${needed}, which the API token lacks.`, {
    hint: `Use a session, or an API token ${name === undefined ? "without" : `that has "${name}" among its`} \`permissions\`.`,
  });
}

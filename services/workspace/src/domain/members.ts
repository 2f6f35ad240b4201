import { DomainError } from "@sandgate/kit/base/domain-error";
import { Role } from "@sandgate/proto/common/v1/access";
import { requireRole } from "./roles.ts";

/** What the member rules need to know of a workspace. The change commits only if it still holds. */
export interface Standing {
  /** The caller's role; unspecified: not a member. */
  readonly actor: Role;
  /** The role of the member the call is about; unspecified: not a member. */
  readonly target: Role;
  /** How many owners the workspace has. */
  readonly owners: number;
}

/** Who may bring in a member with this role, before anything is known of the user. */
export function checkMayAdd(actor: Role, role: Role): void {
  requireRole(actor, Role.ADMIN);
  requireOwnerFor(actor, role);
}

/** The rules of adding a member. */
export function checkAdd(standing: Standing, role: Role): void {
  checkMayAdd(standing.actor, role);
  if (standing.target !== Role.UNSPECIFIED) {
    throw new DomainError("CONFLICT", "This user is a member of the workspace already.", {
      hint: "Change the member's role with PUT /workspaces/{workspace_id}/members/{user_id}.",
    });
  }
}

/** The rules of giving a member another role. */
export function checkRoleChange(standing: Standing, role: Role): void {
  checkMayAdd(standing.actor, role);
  requireMember(standing.target);
  requireOwnerFor(standing.actor, standing.target);
  if (role !== Role.OWNER) {
    requireAnotherOwner(standing);
  }
}

/** The rules of removing a member; anyone may remove themselves. */
export function checkRemoval(standing: Standing, oneself: boolean): void {
  requireRole(standing.actor, oneself ? Role.MEMBER : Role.ADMIN);
  requireMember(standing.target);
  requireOwnerFor(standing.actor, standing.target);
  requireAnotherOwner(standing);
}

function requireMember(target: Role): void {
  if (target === Role.UNSPECIFIED) {
    throw new DomainError("MEMBER_NOT_FOUND", "The workspace has no such member.");
  }
}

function requireOwnerFor(actor: Role, role: Role): void {
  if (role === Role.OWNER) {
    requireRole(actor, Role.OWNER);
  }
}

function requireAnotherOwner(standing: Standing): void {
  if (standing.target === Role.OWNER && standing.owners <= 1) {
    throw new DomainError("CONFLICT", "The last owner of a workspace stays.", {
      hint: "Make another member an owner first, or delete the workspace.",
    });
  }
}

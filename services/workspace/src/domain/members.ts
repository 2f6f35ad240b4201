import { DomainError } from "@sandgate/kit/base/domain-error";
import { requireRole } from "@sandgate/kit/rpc/access";
import { Role } from "@sandgate/proto/common/v1/access";
import type { AccountDeleted, AccountState } from "./accounts.ts";
import type { QuotaOwner } from "./quota-owners.ts";
import { isReached, type Quotas } from "./quotas.ts";
import type { WorkspaceRecord, WorkspaceView } from "./workspaces.ts";

export interface MemberRecord {
  readonly userId: string;
  readonly role: Role;
  readonly joinedAt: Date;
}

/** A workspace and one of its members: everything that the rules about members need. */
export interface MemberView {
  readonly workspace: WorkspaceView;
  readonly member: MemberRecord | undefined;
  /** How many owners the workspace has. */
  readonly owners: number;
  readonly quotaOwner: QuotaOwner;
}

/** The workspace has as many members as the quota allows. */
export type TooManyMembers = "too_many_members";

/** The first member of a new workspace. */
export function ownerOf(workspace: WorkspaceRecord, userId: string): MemberRecord {
  return { userId, role: Role.OWNER, joinedAt: workspace.createdAt };
}

/**
 * Decides whether a user can still join. Whether the caller may add them was decided before, on what was read.
 *
 * @param members counting stops at the quota; 0 without one
 */
export function decideAddMember(
  { account, members }: { account: AccountState; members: number },
  { maxMembers }: Quotas,
): "done" | AccountDeleted | TooManyMembers {
  if (account.deleted) return "account_deleted";
  return isReached(maxMembers, members) ? "too_many_members" : "done";
}

/** Who of the others becomes the owner when the last one has gone: of those with the highest role, who joined first. */
export function successorOf(others: readonly MemberRecord[]): MemberRecord | undefined {
  return others.toSorted((a, b) => b.role - a.role || a.joinedAt.getTime() - b.joinedAt.getTime())[0];
}

/** What the rules about a member decide on. A change commits only while this still holds. */
export interface MembershipState {
  /** The caller's role; unspecified: not a member. */
  readonly actor: Role;
  /** The role of the member the call is about; unspecified: not a member. */
  readonly target: Role;
  /** How many owners the workspace has. */
  readonly owners: number;
}

/** Who may add a member with this role, before anything is known about the user. */
export function checkMayAdd(actor: Role, role: Role): void {
  requireRole(actor, Role.ADMIN);
  requireOwnerFor(actor, role);
}

/** The rules of adding a member. */
export function checkAdd(state: MembershipState, role: Role): void {
  checkMayAdd(state.actor, role);
  if (state.target !== Role.UNSPECIFIED) {
    throw new DomainError("CONFLICT", "This user is already a member of the workspace.", {
      hint: "Change the member's role with PUT /workspaces/{workspace_id}/members/{user_id}.",
    });
  }
}

/** The rules of giving a member another role. */
export function checkRoleChange(state: MembershipState, role: Role): void {
  checkMayAdd(state.actor, role);
  requireMember(state.target);
  requireOwnerFor(state.actor, state.target);
  if (role !== Role.OWNER) {
    requireAnotherOwner(state);
  }
}

/** The rules of removing a member; anyone may remove themselves. */
export function checkRemoval(state: MembershipState, isSelf: boolean): void {
  requireRole(state.actor, isSelf ? Role.MEMBER : Role.ADMIN);
  requireMember(state.target);
  requireOwnerFor(state.actor, state.target);
  requireAnotherOwner(state);
}

export function memberNotFound(): DomainError {
  return new DomainError("MEMBER_NOT_FOUND", "There is no such member in this workspace.");
}

function requireMember(target: Role): void {
  if (target === Role.UNSPECIFIED) throw memberNotFound();
}

function requireOwnerFor(actor: Role, role: Role): void {
  if (role === Role.OWNER) {
    requireRole(actor, Role.OWNER);
  }
}

function requireAnotherOwner(state: MembershipState): void {
  if (state.target === Role.OWNER && state.owners <= 1) {
    throw new DomainError("CONFLICT", "A workspace must keep at least one owner.", {
      hint: "Make another member an owner first, or delete the workspace.",
    });
  }
}

import { Role } from "@sandgate/proto/common/v1/access";

/**
 * The user whose quotas a workspace counts towards. At any time that is one user: its creator, or the owner who took
 * it over last.
 */
export interface QuotaOwner {
  readonly userId: string;
  /** The workspace's version when it began to count. */
  readonly since: number;
}

/** The quota owner of a workspace, as other services see it. */
export interface WorkspaceQuotaOwner extends QuotaOwner {
  readonly workspaceId: string;
  /** The user is no longer an owner, and no other owner has taken the workspace over. */
  readonly abandoned: boolean;
}

/**
 * Whether a change of a member makes its caller the quota owner. What others do must never use up a user's quota. So an
 * owner takes a workspace over in two ways only: by giving themselves the role that they have, or by ending the
 * ownership of the quota owner.
 *
 * @param role the member's new role; unspecified when they are removed
 */
export function takesOver(o: {
  quotaOwner: QuotaOwner;
  actor: { readonly id: string; readonly role: Role };
  target: { readonly id: string; readonly role: Role };
  role: Role;
}): boolean {
  const { quotaOwner, actor, target, role } = o;
  if (actor.role !== Role.OWNER || actor.id === quotaOwner.userId) return false;
  if (target.id === actor.id) return role === Role.OWNER;
  return target.id === quotaOwner.userId && target.role === Role.OWNER && role !== Role.OWNER;
}

import { Role } from "@sandgate/proto/common/v1/access";

/**
 * The user whose quotas a workspace counts towards. It is one user at any time: who created it, or the owner who last
 * took it over.
 */
export interface QuotaOwner {
  readonly userId: string;
  /** The workspace's version when it began to count. */
  readonly since: number;
}

/** The quota owner of a workspace, as the services that count what it holds ask for it. */
export interface WorkspaceQuotaOwner extends QuotaOwner {
  readonly workspaceId: string;
  /** The user is no owner any more, and nobody else has taken the workspace over. */
  readonly abandoned: boolean;
}

/**
 * Whether a change of a member makes the user who calls it the quota owner. What others do never uses up a user's
 * quota, so only two things count as taking over: an owner who gives themselves the role that they have, and one who
 * ends the ownership of the quota owner.
 *
 * @param role the member's from now on; unspecified: none
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

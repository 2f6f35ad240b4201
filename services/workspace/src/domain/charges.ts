import { Role } from "@sandgate/proto/common/v1/access";

/** Whose limits a workspace counts towards. It is one user at any time: who created it, or the owner who last took it over. */
export interface Charge {
  readonly userId: string;
  /** The workspace's version when it began to. */
  readonly since: number;
}

/**
 * Whether who changes a member takes the workspace over with it. Nobody is charged for what others do, so only two things count
 * as taking over: an owner who gives themselves the role that they have, and one who ends the ownership of the user who is
 * charged.
 *
 * @param role the member's from now on; unspecified: none
 */
export function takesOver(o: {
  charge: Charge | undefined;
  actor: { readonly id: string; readonly role: Role };
  target: { readonly id: string; readonly role: Role };
  role: Role;
}): boolean {
  const { charge, actor, target, role } = o;
  if (actor.role !== Role.OWNER || actor.id === charge?.userId) return false;
  if (target.id === actor.id) return role === Role.OWNER;
  return target.id === charge?.userId && target.role === Role.OWNER && role !== Role.OWNER;
}

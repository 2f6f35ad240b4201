import { DomainError } from "@sandgate/kit/base/domain-error";
import { Role } from "@sandgate/proto/common/v1/access";

const names: Record<Role, string> = {
  [Role.UNSPECIFIED]: "none",
  [Role.MEMBER]: "member",
  [Role.ADMIN]: "admin",
  [Role.OWNER]: "owner",
};

/**
 * Refuses a caller whose role is below `least`. The facade asked for the role before it let the call through; this is
 * asked again with what the change commits on, since the role may have been taken away in between.
 */
export function requireRole(role: Role, least: Role): void {
  if (role === Role.UNSPECIFIED) {
    throw new DomainError("WORKSPACE_FORBIDDEN", "You are not a member of this workspace.");
  }
  if (role < least) {
    throw new DomainError("INSUFFICIENT_ROLE", `This needs the ${names[least]} role; yours is ${names[role]}.`, {
      hint: `Ask ${least === Role.OWNER ? "an owner" : "an admin or an owner"} of the workspace to do it, or to raise your role.`,
    });
  }
}

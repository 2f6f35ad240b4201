import { Role } from "@sandgate/proto/common/v1/access";
import { expect, test } from "vitest";
import { requireRole } from "./roles.ts";

test("a role includes the lesser ones", () => {
  requireRole(Role.OWNER, Role.ADMIN);
  requireRole(Role.ADMIN, Role.MEMBER);
  requireRole(Role.MEMBER, Role.MEMBER);
});

test("a role that is too low is told apart from none", () => {
  expect(() => requireRole(Role.MEMBER, Role.ADMIN)).toThrow(expect.objectContaining({ reason: "INSUFFICIENT_ROLE" }));
  expect(() => requireRole(Role.ADMIN, Role.OWNER)).toThrow(expect.objectContaining({ reason: "INSUFFICIENT_ROLE" }));
  expect(() => requireRole(Role.UNSPECIFIED, Role.MEMBER)).toThrow(
    expect.objectContaining({ reason: "WORKSPACE_FORBIDDEN" }),
  );
});

import { Role } from "@sandgate/proto/common/v1/access";
import { expect, test } from "vitest";
import { checkAdd, checkRemoval, checkRoleChange, decideAddMember } from "./members.ts";

const { UNSPECIFIED, MEMBER, ADMIN, OWNER } = Role;
const refusal = (reason: string) => expect.objectContaining({ reason });

test("an admin adds members and admins, and only an owner adds an owner", () => {
  checkAdd({ actor: ADMIN, target: UNSPECIFIED, owners: 1 }, MEMBER);
  checkAdd({ actor: ADMIN, target: UNSPECIFIED, owners: 1 }, ADMIN);
  checkAdd({ actor: OWNER, target: UNSPECIFIED, owners: 1 }, OWNER);
  expect(() => checkAdd({ actor: ADMIN, target: UNSPECIFIED, owners: 1 }, OWNER)).toThrow(refusal("INSUFFICIENT_ROLE"));
  expect(() => checkAdd({ actor: MEMBER, target: UNSPECIFIED, owners: 1 }, MEMBER)).toThrow(
    refusal("INSUFFICIENT_ROLE"),
  );
});

test("a member is not added twice", () => {
  expect(() => checkAdd({ actor: OWNER, target: MEMBER, owners: 1 }, ADMIN)).toThrow(refusal("CONFLICT"));
});

test("only an owner makes or unmakes owners", () => {
  checkRoleChange({ actor: ADMIN, target: MEMBER, owners: 1 }, ADMIN);
  checkRoleChange({ actor: OWNER, target: OWNER, owners: 2 }, MEMBER);
  expect(() => checkRoleChange({ actor: ADMIN, target: MEMBER, owners: 1 }, OWNER)).toThrow(
    refusal("INSUFFICIENT_ROLE"),
  );
  expect(() => checkRoleChange({ actor: ADMIN, target: OWNER, owners: 2 }, ADMIN)).toThrow(
    refusal("INSUFFICIENT_ROLE"),
  );
  expect(() => checkRemoval({ actor: ADMIN, target: OWNER, owners: 2 }, false)).toThrow(refusal("INSUFFICIENT_ROLE"));
});

test("a workspace keeps its last owner", () => {
  checkRoleChange({ actor: OWNER, target: OWNER, owners: 1 }, OWNER);
  expect(() => checkRoleChange({ actor: OWNER, target: OWNER, owners: 1 }, ADMIN)).toThrow(refusal("CONFLICT"));
  expect(() => checkRemoval({ actor: OWNER, target: OWNER, owners: 1 }, true)).toThrow(refusal("CONFLICT"));
  checkRemoval({ actor: OWNER, target: OWNER, owners: 2 }, true);
});

test("a member leaves, but removes nobody else", () => {
  checkRemoval({ actor: MEMBER, target: MEMBER, owners: 1 }, true);
  expect(() => checkRemoval({ actor: MEMBER, target: MEMBER, owners: 1 }, false)).toThrow(refusal("INSUFFICIENT_ROLE"));
});

test("a missing member is reported only to those who may ask", () => {
  expect(() => checkRemoval({ actor: ADMIN, target: UNSPECIFIED, owners: 1 }, false)).toThrow(
    refusal("MEMBER_NOT_FOUND"),
  );
  expect(() => checkRoleChange({ actor: ADMIN, target: UNSPECIFIED, owners: 1 }, MEMBER)).toThrow(
    refusal("MEMBER_NOT_FOUND"),
  );
  expect(() => checkRemoval({ actor: MEMBER, target: UNSPECIFIED, owners: 1 }, false)).toThrow(
    refusal("INSUFFICIENT_ROLE"),
  );
});

test("a deleted account joins nothing, and a workspace gets no more members than its quota, where 0 is none", () => {
  const account = { deleted: false, hadPersonalWorkspace: true, owned: 0 };
  const quotas = { maxOwned: 0, maxMembers: 2 };
  expect(decideAddMember({ account, members: 1 }, quotas)).toBe("done");
  expect(decideAddMember({ account, members: 2 }, quotas)).toBe("too_many_members");
  expect(decideAddMember({ account, members: 0 }, { ...quotas, maxMembers: 0 })).toBe("done");
  expect(decideAddMember({ account: { ...account, deleted: true }, members: 2 }, quotas)).toBe("account_deleted");
});

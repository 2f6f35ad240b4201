import { Role } from "@sandgate/proto/common/v1/access";
import { expect, test } from "vitest";
import { takesOver } from "./quota-owners.ts";

const { UNSPECIFIED, MEMBER, ADMIN, OWNER } = Role;
const quotaOwner = { userId: "ann", since: 1 };
const bob = { id: "bob", role: OWNER };
const ann = { id: "ann", role: OWNER };

test("an owner takes a workspace over by confirming their own role", () => {
  expect(takesOver({ quotaOwner, actor: bob, target: bob, role: OWNER })).toBe(true);
  expect(takesOver({ quotaOwner, actor: ann, target: ann, role: OWNER })).toBe(false);
  expect(takesOver({ quotaOwner, actor: bob, target: bob, role: ADMIN })).toBe(false);
});

test("an owner takes it over by ending the ownership of the quota owner", () => {
  expect(takesOver({ quotaOwner, actor: bob, target: ann, role: UNSPECIFIED })).toBe(true);
  expect(takesOver({ quotaOwner, actor: bob, target: ann, role: MEMBER })).toBe(true);
  expect(takesOver({ quotaOwner, actor: bob, target: ann, role: OWNER })).toBe(false);
  // They had left before.
  expect(takesOver({ quotaOwner, actor: bob, target: { id: "ann", role: MEMBER }, role: UNSPECIFIED })).toBe(false);
});

test("nobody takes it over by what others do, or the quota owner does", () => {
  expect(takesOver({ quotaOwner, actor: ann, target: { id: "bob", role: UNSPECIFIED }, role: OWNER })).toBe(false);
  expect(takesOver({ quotaOwner, actor: ann, target: bob, role: UNSPECIFIED })).toBe(false);
  expect(takesOver({ quotaOwner, actor: ann, target: ann, role: UNSPECIFIED })).toBe(false);
  expect(
    takesOver({ quotaOwner, actor: { id: "carl", role: ADMIN }, target: { id: "carl", role: ADMIN }, role: OWNER }),
  ).toBe(false);
});

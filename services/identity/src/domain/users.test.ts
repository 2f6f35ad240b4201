import { expect, test } from "vitest";
import { isLastOperator, usernameKey } from "./users.ts";

test("user names are compared without case and in one Unicode form", () => {
  expect(usernameKey("Ann@Example.COM")).toBe("ann@example.com");
  expect(usernameKey("JOSE\u0301@example.com")).toBe(usernameKey("jos\u00e9@example.com"));
  expect(usernameKey("ann@example.com")).not.toBe(usernameKey("anna@example.com"));
});

test("an operator is the last one when there is no other who isn't disabled", () => {
  const user = { id: "root", username: "root", verified: true, disabled: false, createdAt: new Date(0) };
  expect(isLastOperator({ ...user, operator: true }, false)).toBe(true);
  expect(isLastOperator({ ...user, operator: true }, true)).toBe(false);
  expect(isLastOperator({ ...user, operator: false }, false)).toBe(false);
});

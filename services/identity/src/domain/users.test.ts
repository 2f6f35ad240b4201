import { expect, test } from "vitest";
import { usernameKey } from "./users.ts";

test("user names are compared without case and in one Unicode form", () => {
  expect(usernameKey("Ann@Example.COM")).toBe("ann@example.com");
  expect(usernameKey("JOSE\u0301@example.com")).toBe(usernameKey("jos\u00e9@example.com"));
  expect(usernameKey("ann@example.com")).not.toBe(usernameKey("anna@example.com"));
});

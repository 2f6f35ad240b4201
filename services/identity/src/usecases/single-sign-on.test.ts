import { DomainError } from "@sandgate/kit/base/domain-error";
import { expect, test } from "vitest";
import { failureOf } from "./single-sign-on.ts";

test("the application is told of an error what a caller would be told", () => {
  const unreachable = Object.assign(new Error("connection closed"), { name: "MongoNetworkError" });
  expect(failureOf(unreachable)).toBe("UPSTREAM_ERROR");
  expect(failureOf(new Error("unexpected", { cause: unreachable }))).toBe("UPSTREAM_ERROR");
  expect(failureOf(new DomainError("FORBIDDEN", "disabled"))).toBe("FORBIDDEN");
  expect(failureOf(new DomainError("STORAGE_FULL", "no space"))).toBe("UPSTREAM_ERROR");
  expect(failureOf(new TypeError("a bug"))).toBe("INTERNAL_ERROR");
});

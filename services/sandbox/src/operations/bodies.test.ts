import { expect, test } from "vitest";
import { createBodies } from "./bodies.ts";

test("a sandbox has no more on their way than it may, which is told apart from its end", () => {
  const bodies = createBodies(2);
  const [release] = [bodies.take("a"), bodies.take("a")];
  expect(() => bodies.take("a")).toThrow(expect.objectContaining({ reason: "CONFLICT", errno: "EMFILE" }));
  bodies.take("b");
  release?.();
  bodies.take("a");
});

import type { FastifyInstance } from "fastify";
import { expect, test, vi } from "vitest";
import { openTestPlatform } from "../test-platform.ts";

let isAway = true;
vi.mock("@scalar/fastify-api-reference", () => ({
  async default(app: FastifyInstance) {
    if (isAway) throw new Error("away");
    app.get("/js/scalar.js", () => "the script");
  },
}));

test("the reference's script is loaded again after it could not be", async () => {
  const platform = await openTestPlatform();
  const load = () => platform.app.inject("/docs/reference.js");
  expect((await load()).statusCode).toBe(500);
  isAway = false;
  expect((await load()).body).toBe("the script");
  await platform.close();
});

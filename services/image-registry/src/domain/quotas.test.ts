import { expect, test } from "vitest";
import { decideCreate } from "./quotas.ts";

test("a workspace gets no more than its quota, where 0 is none, and nothing once it is deleted", () => {
  expect(decideCreate({ deleted: false, count: 1 }, 2)).toBe("done");
  expect(decideCreate({ deleted: false, count: 2 }, 2)).toBe("too_many");
  expect(decideCreate({ deleted: false, count: 0 }, 0)).toBe("done");
  expect(decideCreate({ deleted: true, count: 2 }, 2)).toBe("workspace_deleted");
});

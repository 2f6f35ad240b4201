import { expect, test } from "vitest";
import { decideCreateRegistry, decideUpdateRegistry } from "./registries.ts";

const quotas = { maxImages: 0, maxRegistries: 1 };

test("a name is taken before a quota is reached, and nothing is created in a deleted workspace", () => {
  const workspace = { deleted: false, count: 1 };
  expect(decideCreateRegistry({ deleted: true, count: 1 }, true, quotas)).toBe("workspace_deleted");
  expect(decideCreateRegistry(workspace, true, quotas)).toBe("name_taken");
  expect(decideCreateRegistry(workspace, false, quotas)).toBe("too_many");
  expect(decideCreateRegistry({ ...workspace, count: 0 }, false, quotas)).toBe("done");
});

test("a credential keeps its host while an image uses it, and its name is its own", () => {
  const before = { host: "ghcr.io", inUse: true, nameTaken: false };
  expect(decideUpdateRegistry(before, { host: "quay.io" })).toBe("in_use");
  expect(decideUpdateRegistry(before, { host: "ghcr.io" })).toBe("done");
  expect(decideUpdateRegistry({ ...before, inUse: false }, { host: "quay.io" })).toBe("done");
  expect(decideUpdateRegistry({ ...before, nameTaken: true }, { host: "quay.io" })).toBe("in_use");
  expect(decideUpdateRegistry({ ...before, nameTaken: true }, { host: "ghcr.io" })).toBe("name_taken");
});

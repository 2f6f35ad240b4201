import { expect, test } from "vitest";
import type { SandboxRecord } from "../domain/batches.ts";
import { createWorkspaceLookup } from "./ownership.ts";

test("the sandbox service is asked until something is stored of a sandbox, and the store only once more", async () => {
  const asked: string[] = [];
  let stored: SandboxRecord | undefined;
  const find = createWorkspaceLookup({
    sources: {
      async findSandbox(id) {
        asked.push(`store ${id}`);
        return stored;
      },
    },
    sandboxes: {
      async getSandboxWorkspace({ sandboxId = "" }) {
        asked.push(`service ${sandboxId}`);
        return { $typeName: "sandgate.sandbox.v1.GetSandboxWorkspaceResponse", workspaceId: "w", createdBy: "" };
      },
    },
  });
  const { signal } = new AbortController();
  expect(await find("a", signal)).toBe("w");
  stored = { workspaceId: "w", sequences: { logs: 0, metrics: 0 }, sources: [] };
  for (let i = 0; i < 3; i++) expect(await find("a", signal)).toBe("w");
  expect(asked).toEqual(["store a", "service a", "store a"]);
});

import { DomainError } from "@sandgate/kit/base/domain-error";
import type { SandboxRecord } from "../domain/batches.ts";
import type { Sources } from "../store/sources.ts";

/**
 * Finds a sandbox of the workspace; undefined while it has no rows. Throws SANDBOX_NOT_FOUND for another workspace's.
 */
export async function findOwn(
  { sources }: { sources: Pick<Sources, "findSandbox"> },
  { sandboxId, workspaceId }: { sandboxId: string; workspaceId: string },
): Promise<SandboxRecord | undefined> {
  const sandbox = await sources.findSandbox(sandboxId);
  if (sandbox && sandbox.workspaceId !== workspaceId) {
    throw new DomainError("SANDBOX_NOT_FOUND", "There is no such sandbox.");
  }
  return sandbox;
}

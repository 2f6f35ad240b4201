import type { Client } from "@connectrpc/connect";
import { asService } from "@sandgate/kit/rpc/context";
import type { SandboxService } from "@sandgate/proto/sandbox/v1/sandbox";
import type { Sources } from "../store/sources.ts";

/** The workspace that a sandbox belongs to. Throws SANDBOX_NOT_FOUND for a sandbox without a record. */
export type WorkspaceLookup = (sandboxId: string, signal: AbortSignal) => Promise<string>;

/** Asks the sandbox service once for each sandbox: afterwards the store has the answer beside the sandbox's rows. */
export function createWorkspaceLookup(o: {
  sources: Pick<Sources, "findSandbox">;
  sandboxes: Pick<Client<typeof SandboxService>, "getSandboxWorkspace">;
}): WorkspaceLookup {
  return async (sandboxId, signal) => {
    const stored = await o.sources.findSandbox(sandboxId);
    if (stored) return stored.workspaceId;
    const { workspaceId } = await o.sandboxes.getSandboxWorkspace({ sandboxId }, asService({ signal }));
    return workspaceId;
  };
}

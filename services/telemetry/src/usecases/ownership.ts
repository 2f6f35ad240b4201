import type { Client } from "@connectrpc/connect";
import { asService } from "@sandgate/kit/rpc/context";
import type { SandboxService } from "@sandgate/proto/sandbox/v1/sandbox";
import type { Sources } from "../store/sources.ts";

/** The workspace that a sandbox belongs to. Throws SANDBOX_NOT_FOUND for a sandbox without a record. */
export type WorkspaceLookup = (sandboxId: string, signal: AbortSignal) => Promise<string>;

/** How many sandboxes' workspaces are remembered. A sandbox doesn't change its workspace. */
const maxKnown = 20_000;

/**
 * Asks the sandbox service once for each sandbox: afterwards the store has the answer beside the sandbox's rows. What
 * the store has is remembered, as each line of each sandbox asks.
 */
export function createWorkspaceLookup(o: {
  sources: Pick<Sources, "findSandbox">;
  sandboxes: Pick<Client<typeof SandboxService>, "getSandboxWorkspace">;
}): WorkspaceLookup {
  const known = new Map<string, string>();
  return async (sandboxId, signal) => {
    const remembered = known.get(sandboxId);
    if (remembered !== undefined) return remembered;
    const stored = await o.sources.findSandbox(sandboxId);
    if (stored) {
      const [oldest] = known.size >= maxKnown ? known.keys() : [];
      if (oldest !== undefined) known.delete(oldest);
      known.set(sandboxId, stored.workspaceId);
      return stored.workspaceId;
    }
    const { workspaceId } = await o.sandboxes.getSandboxWorkspace({ sandboxId }, asService({ signal }));
    return workspaceId;
  };
}

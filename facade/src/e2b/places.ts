import { DomainError } from "@sandgate/kit/base/domain-error";
import { asFacade } from "@sandgate/kit/rpc/context";
import type { FastifyRequest } from "fastify";
import { LoadingCache } from "../pipeline/admission/loading-cache.ts";
import { signedInOf } from "../pipeline/base/request-context.ts";
import type { RouteContext } from "../pipeline/route.ts";

/** How long a user's default workspace is remembered. */
const defaultAgeMs = 10_000;
/** A sandbox never changes its workspace. */
const ofSandboxAgeMs = 3_600_000;

/** The workspaces that requests of programs written for E2B belong to. */
export interface Places {
  /** The token's workspace, else the one that the request names, else the user's default one. */
  ofCaller(request: FastifyRequest): Promise<string | undefined>;
  /** The workspace of a sandbox, and who made it. Throws SANDBOX_NOT_FOUND. */
  ofSandbox(sandboxId: string, requestId: string): Promise<{ workspaceId: string; createdBy: string }>;
}

export function createPlaces({ clients: { workspace, sandbox } }: Pick<RouteContext, "clients">): Places {
  const defaults = new LoadingCache<string | undefined>({ maxAgeMs: defaultAgeMs });
  const ofSandboxes = new LoadingCache<{ workspaceId: string; createdBy: string }>({ maxAgeMs: ofSandboxAgeMs });

  async function findDefault(request: FastifyRequest): Promise<string | undefined> {
    // Which workspace a request is about is no answer of it, so the token needs no permission for that.
    const { permissions: _, ...user } = signedInOf(request).user;
    const call = asFacade({ requestId: request.id, user });
    const { defaultWorkspaceId } = await workspace.listWorkspaces({ page: { limit: 1 } }, call);
    return defaultWorkspaceId || undefined;
  }

  return {
    async ofCaller(request) {
      const { boundTo, user } = signedInOf(request);
      const { "x-workspace-id": named } = request.headers;
      if (boundTo !== undefined || (typeof named === "string" && named !== "")) return boundTo ?? String(named);
      return defaults.get(user.id, () => findDefault(request));
    },

    ofSandbox(sandboxId, requestId) {
      return ofSandboxes.get(sandboxId, () => sandbox.getSandboxWorkspace({ sandboxId }, asFacade({ requestId })));
    },
  };
}

/** Of a name that no sandbox of the caller has now, whatever it was before. */
export function noSuchSandbox(): DomainError {
  return new DomainError("SANDBOX_NOT_FOUND", "There is no such sandbox.", {
    hint: "It has ended, or it never was: create another one.",
  });
}

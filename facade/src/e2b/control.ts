import { newId } from "@sandgate/kit/base/ids";
import { requirePermission } from "@sandgate/kit/rpc/access";
import { asFacade } from "@sandgate/kit/rpc/context";
import { Permission } from "@sandgate/proto/common/v1/access";
import { type Sandbox, SandboxState } from "@sandgate/proto/sandbox/v1/sandbox";
import type { FastifyRequest } from "fastify";
import { LoadingCache } from "../pipeline/admission/loading-cache.ts";
import { signedInOf } from "../pipeline/base/request-context.ts";
import type { RouteRules } from "../pipeline/base/route-rules.ts";
import { present } from "../pipeline/messages/contract.ts";
import type { RouteContext } from "../pipeline/route.ts";
import { hasExpired, isPrivate, type Limits, type SandboxAccess, toOpenedSandbox } from "./control-mapping.ts";
import { sayControlError } from "./errors.ts";
import type { Names } from "./names.ts";
import { noSuchSandbox } from "./places.ts";

/** Settings of the sandbox service change when it starts again. */
const limitsAgeMs = 60_000;

/** What the routes of the control plane use. */
export interface Control extends RouteContext {
  names: Names;
  /** Whether the ports of a sandbox are open to whoever knows its name, unless its creator asked for none of that. */
  isPublic: boolean;
  /** What each sandbox may use. */
  findLimits(): Promise<Limits>;
  /** The id of the sandbox that a request names, which may be another workspace's. Throws SANDBOX_NOT_FOUND. */
  idOf(request: { params: { sandbox_name: string } }): Promise<string>;
  /** What the request's caller needs to use a sandbox, if the caller may. */
  accessTo(request: FastifyRequest, sandbox: Sandbox): Promise<SandboxAccess>;
  /** The sandbox with all that opens it, for a caller who may use it. */
  open(request: FastifyRequest, sandbox: Sandbox): Promise<ReturnType<typeof toOpenedSandbox>>;
}

export function createControl(context: RouteContext & { names: Names; domain: string; isPublic: boolean }): Control {
  const { clients, names, domain } = context;
  const limits = new LoadingCache<Limits>({ maxAgeMs: limitsAgeMs });

  async function accessTo(request: FastifyRequest, { id }: Sandbox): Promise<SandboxAccess> {
    const { credentialId } = signedInOf(request).user;
    return { envdAccessToken: await names.toAccessToken(id, credentialId), domain };
  }

  return {
    ...context,
    findLimits: () => limits.get("", () => clients.sandbox.getInstallation({}, asFacade({ requestId: newId() }))),

    async idOf({ params }) {
      const id = await names.fromSandboxName(params.sandbox_name);
      if (id === undefined) throw noSuchSandbox();
      return id;
    },

    accessTo,

    async open(request, sandbox) {
      const [name, access, trafficToken] = await Promise.all([
        names.toSandboxName(sandbox.id),
        accessTo(request, sandbox),
        context.isPublic && !isPrivate(sandbox) ? undefined : names.toTrafficToken(sandbox.id),
      ]);
      return toOpenedSandbox(sandbox, { ...access, name, trafficToken });
    },
  };
}

/** The rules of a route of the control plane. */
export function controlRules(rules: RouteRules): { rules: RouteRules } {
  return { rules: { ...rules, sayError: sayControlError } };
}

/** Throws FORBIDDEN for a token that may not use sandboxes, and so gets nothing that opens them or their ports. */
export function requireUse(request: FastifyRequest): void {
  requirePermission(signedInOf(request).user, { permission: Permission.USE, anyPermission: false });
}

/** A sandbox that can be used. Throws SANDBOX_NOT_FOUND for any other. */
export function requireRunning(found: Sandbox | undefined): Sandbox {
  const sandbox = present(found);
  if (sandbox.state !== SandboxState.READY || hasExpired(sandbox, Date.now())) throw noSuchSandbox();
  return sandbox;
}

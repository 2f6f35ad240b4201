import { DomainError } from "@sandgate/kit/base/domain-error";
import { asFacade } from "@sandgate/kit/rpc/context";
import { Role } from "@sandgate/proto/common/v1/access";
import { SandboxState } from "@sandgate/proto/sandbox/v1/sandbox";
import type { FastifyReply, FastifyRequest } from "fastify";
import { LoadingCache } from "../pipeline/admission/loading-cache.ts";
import type { App } from "../pipeline/base/app.ts";
import { addressOf } from "../pipeline/base/request-context.ts";
import type { ErrorAnswer } from "../pipeline/base/route-rules.ts";
import { createLocalRateLimiter } from "../pipeline/limits/rate-limiter.local.ts";
import { recheck } from "../pipeline/live/rechecks.ts";
import { present } from "../pipeline/messages/contract.ts";
import { type ProxyTarget, proxyRequest, proxyUpgrade } from "../pipeline/proxy/http-proxy.ts";
import { openPortStream } from "../pipeline/proxy/port-stream.ts";
import { passRequests } from "../pipeline/proxy/proxy-route.ts";
import type { RouteContext } from "../pipeline/route.ts";
import { leaveBodies } from "../pipeline/validation/body-parser.ts";
import { changePreviewAnswer } from "../previews/credentials.ts";
import { hasExpired, isPrivate } from "./control-mapping.ts";
import { isGone, sayControlError, sayUnreachable } from "./errors.ts";
import { portPlaceOf, portPrefix } from "./hosts.ts";
import type { Names } from "./names.ts";
import { noSuchSandbox, type Places } from "./places.ts";

const methods = ["DELETE", "GET", "HEAD", "OPTIONS", "PATCH", "POST", "PUT"] as const;
const tokenHeader = "e2b-traffic-access-token";
/** As previews have them. */
const requestsPerSecond = 200;
const maxConnections = 256;
/** How long it is remembered what opens a sandbox's ports, and whether its creator's account is open. */
const rememberedMs = 1_000;

/** What listens on the ports of sandboxes, for everybody who knows a sandbox's name or has its token. */
export async function portRoutes(
  app: App,
  context: RouteContext & { names: Names; places: Places; isPublic: boolean },
): Promise<void> {
  const { clients, names, places, scope, publicUrl } = context;
  const limiter = createLocalRateLimiter({ windowMs: 1_000 });
  const connections = new Map<string, number>();
  const privates = new LoadingCache<boolean>({ maxAgeMs: rememberedMs });
  const accounts = new LoadingCache<boolean>({ maxAgeMs: rememberedMs });
  const draining = new AbortController();
  app.addHook("preClose", async () => draining.abort(new DomainError("DRAINING", "The server is shutting down.")));
  leaveBodies(app);

  function hasOpenAccount(id: string, requestId: string): Promise<boolean> {
    return accounts.get(id, async () => {
      const { users } = await clients.identity.batchGetUsers({ userIds: [id] }, asFacade({ requestId }));
      return users.some(({ disabled }) => !disabled);
    });
  }

  /** The sandbox's creator, with whose membership and account its ports are open. Throws SANDBOX_NOT_FOUND. */
  async function findCaller(sandboxId: string, requestId: string) {
    const { workspaceId, createdBy: id } = await places.ofSandbox(sandboxId, requestId);
    if (!(await hasOpenAccount(id, requestId))) throw noSuchSandbox();
    const user = { id, credential: "api_token" as const, credentialId: sandboxId, operator: false };
    const within = { inPath: false, least: Role.MEMBER, requestId };
    return scope.enter({ user }, workspaceId, within).catch((error: unknown) => {
      throw error instanceof DomainError && error.reason === "WORKSPACE_FORBIDDEN" ? noSuchSandbox() : error;
    });
  }

  /** Who may reach a sandbox's ports. Throws SANDBOX_NOT_FOUND or FORBIDDEN. */
  async function admit(request: FastifyRequest) {
    const place = portPlaceOf(request.raw);
    const sandboxId = place && (await names.fromSandboxName(place.sandboxName));
    if (!place || sandboxId === undefined) throw noSuchSandbox();
    const caller = await findCaller(sandboxId, request.id);
    const isOpen = !(await privates.get(sandboxId, async () => {
      const { sandbox } = await clients.sandbox.getSandbox(
        { idOrName: sandboxId },
        asFacade({ requestId: request.id, user: caller }),
      );
      const found = present(sandbox);
      if (found.state !== SandboxState.READY || hasExpired(found, Date.now())) throw noSuchSandbox();
      return isPrivate(found);
    }));
    const { [tokenHeader]: token } = request.headers;
    const isKnown = typeof token === "string" && (await names.isTrafficToken(sandboxId, token));
    if (!isKnown && !(isOpen && context.isPublic)) {
      throw new DomainError("FORBIDDEN", "The ports of this sandbox need its traffic access token.", {
        hint: `Send it in the header ${tokenHeader}.`,
      });
    }
    return { ...place, sandboxId, caller };
  }

  async function pass(request: FastifyRequest, reply: FastifyReply, isUpgrade: boolean): Promise<void> {
    const { sandboxId, port, caller } = await admit(request);
    const { allowed, resetSeconds } = await limiter.consume(sandboxId, requestsPerSecond);
    const open = connections.get(sandboxId) ?? 0;
    if (!allowed || open >= maxConnections) {
      throw new DomainError("RATE_LIMITED", "The sandbox gets too many requests.", { retryAfterSeconds: resetSeconds });
    }
    connections.set(sandboxId, open + 1);
    const ended = new AbortController();
    const stopChecks = recheck(
      () => findCaller(sandboxId, request.id),
      (reason) => ended.abort(reason),
    );
    try {
      const call = (signal: AbortSignal | undefined) =>
        asFacade({ requestId: request.id, user: caller, signal, timeoutMs: 0 });
      const target: ProxyTarget = {
        connect: () =>
          openPortStream({ sandbox: sandboxId, port }, (requests, { signal }) =>
            clients.ports.connectPort(requests, call(signal)),
          ),
        path: (request.raw.url ?? "/").slice(portPrefix.length) || "/",
        host: request.headers.host ?? `localhost:${port}`,
        forwarded: {
          for: addressOf(request),
          proto: new URL(publicUrl).protocol === "https:" ? "https" : "http",
          host: request.headers.host ?? "",
        },
        replaced: { [tokenHeader]: undefined, "x-access-token": undefined },
        changeAnswer: changePreviewAnswer,
        added: [],
        onAnswer: () => void reply.hijack(),
        // Requests are still answered while the server closes.
        signal: isUpgrade ? AbortSignal.any([ended.signal, draining.signal]) : ended.signal,
      };
      await (isUpgrade ? proxyUpgrade : proxyRequest)(request.raw, reply.raw, target);
    } finally {
      stopChecks();
      const left = (connections.get(sandboxId) ?? 1) - 1;
      if (left > 0) connections.set(sandboxId, left);
      else connections.delete(sandboxId);
    }
  }

  for (const method of methods) {
    app.route({
      method,
      // Without a slash, so that the host's own root is one of its paths.
      url: "*",
      // Its limits are of the sandbox, and who may call it is found here.
      config: { rules: { rpc: "none", limit: "uncounted", upgrades: true, sayError: sayPortError } },
      schema: { hide: true },
      exposeHeadRoute: false,
      ...passRequests(pass),
    });
  }
}

function sayPortError(error: DomainError, { raw }: FastifyRequest): ErrorAnswer {
  const name = portPlaceOf(raw)?.sandboxName ?? "";
  if (isGone(error)) return sayUnreachable(name);
  if (error.reason === "UPSTREAM_ERROR" && error.callersFault) {
    return sayUnreachable(name, "The sandbox is running but port is not open");
  }
  return sayControlError(error);
}

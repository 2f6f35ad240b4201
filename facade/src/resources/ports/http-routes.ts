import { DomainError } from "@sandgate/kit/base/domain-error";
import { PortService } from "@sandgate/proto/sandbox/v1/ports";
import type { FastifyReply, FastifyRequest } from "fastify";
import type { Static } from "typebox";
import { addressOf, callFor } from "../../pipeline/base/request-context.ts";
import { ofThingInSandbox } from "../../pipeline/errors/in-sandbox.ts";
import { type ProxyTarget, proxyRequest, proxyUpgrade } from "../../pipeline/proxy/http-proxy.ts";
import { openPortStream } from "../../pipeline/proxy/port-stream.ts";
import { passRequests } from "../../pipeline/proxy/proxy-route.ts";
import type { RoutePlugin } from "../../pipeline/route.ts";
import { leaveBodies } from "../../pipeline/validation/body-parser.ts";
import { WorkspaceHeaders } from "../../pipeline/validation/common-schemas.ts";
import { sandboxIdOf } from "../sandboxes/mapping.ts";
import { PortPathParams } from "./schemas.ts";

const methods = ["GET", "POST", "PUT", "PATCH", "DELETE", "OPTIONS"] as const;
const path = "/sandboxes/:sandbox_id/ports/:port/http";
/** The segments of the path that are ours. */
const ownSegments = path.split("/").length;

/** Headers of an answer by which a browser would change what it does or keeps for all of the API's origin. */
const ofOrigin = new Set([
  "accept-ch",
  "alt-svc",
  "clear-site-data",
  "content-security-policy-report-only",
  "nel",
  "origin-agent-cluster",
  "public-key-pins",
  "report-to",
  "reporting-endpoints",
  "service-worker-allowed",
  "set-cookie",
  "set-cookie2",
  "strict-transport-security",
]);
const allowOrigin = "access-control-";

/** Requests to servers in sandboxes, for programs that have a credential of the API. */
export const portHttpRoutes: RoutePlugin = async (app, { clients: { ports }, live, publicUrl }) => {
  leaveBodies(app);

  function targetOf(request: FastifyRequest, reply: FastifyReply, signal: AbortSignal): ProxyTarget {
    const { sandbox_id, port, "*": rest } = request.params as Static<typeof PortPathParams> & { "*"?: string };
    requireOwnPath(rest);
    const { host, protocol } = new URL(publicUrl);
    const own = ownHeaders(reply);
    const start = { sandbox: sandboxIdOf(sandbox_id), port: Number(port) };
    return {
      connect: () =>
        openPortStream(start, (requests, { signal }) =>
          ports.connectPort(requests, callFor(request, { ...(signal && { signal }), timeoutMs: 0 })),
        ),
      path: restOf(request.raw.url ?? "/"),
      host: `localhost:${port}`,
      forwarded: { for: addressOf(request), proto: protocol === "https:" ? "https" : "http", host },
      replaced: {
        authorization: undefined,
        cookie: withoutOwn(request.headers.cookie),
        "x-workspace-id": undefined,
      },
      changeAnswer: (name, value) =>
        ofOrigin.has(name) || name.startsWith(allowOrigin) || own.has(name) ? undefined : value,
      added: [...own].flat(),
      onAnswer: () => void reply.hijack(),
      signal,
    };
  }

  for (const method of methods) {
    app.route({
      method,
      url: `${path}*`,
      config: {
        rules: { rpc: PortService.method.connectPort, audit: "port.connect", errors: ofThingInSandbox, upgrades: true },
      },
      schema: {
        tags: ["Ports"],
        operationId: `${method.toLowerCase()}OnPort`,
        summary: `Send a ${method} request to a port`,
        description:
          "Streams the request to the server on this port of the sandbox, without the credential, and streams the server's answer back. The server may listen on a loopback address alone. `upstream_error` when nothing listens there. A GET may be for a WebSocket. The methods are GET, HEAD, POST, PUT, PATCH, DELETE and OPTIONS, and what is escaped in the path is UTF-8: anything else is `not_found`, and reaches the server only through a preview. The answer has the header `Content-Security-Policy: sandbox` and sets no cookies; to show a page in a browser, make a preview.",
        headers: WorkspaceHeaders,
        params: PortPathParams,
        response: {
          200: {
            description: "Whatever the server answers, with any status.",
            content: { "*/*": { schema: { type: "string", format: "binary" } } },
          },
        },
      },
      ...passRequests((request, reply, isUpgrade) =>
        live.run(request, reply, ({ signal }) =>
          (isUpgrade ? proxyUpgrade : proxyRequest)(request.raw, reply.raw, targetOf(request, reply, signal)),
        ),
      ),
    });
  }
};

/** The headers that the API gives to any answer; the server's of the same names are left out. */
function ownHeaders(reply: FastifyReply): ReadonlyMap<string, string> {
  const own = new Map(Object.entries(reply.getHeaders()).map(([name, value]) => [name, String(value)]));
  own.delete("strict-transport-security");
  return own.set("content-security-policy", "sandbox");
}

/** The path on the server, with the query, as it was sent. */
function restOf(url: string): string {
  const [ownPath = ""] = url.split("?", 1);
  const own = ownPath.split("/", ownSegments).join("/");
  const rest = url.slice(own.length);
  return rest.startsWith("/") ? rest : `/${rest}`;
}

/** The router's pattern has no slash, so that there need be none. */
function requireOwnPath(rest: string | undefined): void {
  if (rest && !rest.startsWith("/")) throw new DomainError("NOT_FOUND", "There is no such route.");
}

/** A Cookie header without the API's own cookies. */
function withoutOwn(cookies: string | undefined): string | undefined {
  const others = cookies?.split(";").filter((pair) => !/^\s*(?:__Host-)?sandgate/.test(pair));
  return others && others.length > 0 ? others.join(";").trim() : undefined;
}

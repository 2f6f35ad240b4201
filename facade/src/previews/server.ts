import { type IncomingMessage, ServerResponse } from "node:http";
import type { Socket } from "node:net";
import type { Duplex } from "node:stream";
import { DomainError } from "@sandgate/kit/base/domain-error";
import { networksOf } from "@sandgate/kit/base/networks";
import { publicErrors, toPublicReason } from "@sandgate/kit/base/reasons";
import { asFacade } from "@sandgate/kit/rpc/context";
import { HostHeader, type Preview } from "@sandgate/proto/sandbox/v1/previews";
import type { Clients } from "../pipeline/base/clients.ts";
import { requestIdOf } from "../pipeline/base/request-context.ts";
import { validationError } from "../pipeline/errors/envelope.ts";
import type { ErrorResponder } from "../pipeline/errors/responses.ts";
import type { RateLimiter } from "../pipeline/limits/rate-limiter.ts";
import { openPortAgent } from "../pipeline/proxy/agent.ts";
import { type ProxyTarget, proxyRequest, proxyUpgrade } from "../pipeline/proxy/http-proxy.ts";
import { openPortStream } from "../pipeline/proxy/port-stream.ts";
import type { PreviewAccessCheck } from "./access.ts";
import { changePreviewAnswer, previewTokenHeader } from "./credentials.ts";
import type { PreviewHosts } from "./hosts.ts";
import type { LivePreviews } from "./live-previews.ts";
import type { PreviewMetrics } from "./metrics.ts";

/** Of a preview, in this process. */
const requestsPerSecond = 200;
const maxOpen = 256;

/** What answers on the hosts of previews, beside the API and with none of its routes. */
export interface PreviewServer {
  /** Whether the request's host is a preview's. */
  isPreview(request: IncomingMessage): boolean;
  request(request: IncomingMessage, response: ServerResponse): void;
  /** For a request for a WebSocket. */
  upgrade(request: IncomingMessage, socket: Duplex, head: Buffer): void;
  /** Ends open WebSockets, and accepts no more. */
  drain(): void;
}

interface Served {
  raw: IncomingMessage;
  response: ServerResponse;
  isWebSocket: boolean;
  label: string;
  requestId: string;
}

export function createPreviewServer(o: {
  hosts: PreviewHosts;
  access: PreviewAccessCheck;
  live: LivePreviews;
  clients: Pick<Clients, "ports">;
  errors: Pick<ErrorResponder, "respondRaw">;
  /** Counts the requests of a preview by the second, and those that are refused by the minute. */
  limiters: { ofSeconds: RateLimiter; ofMinutes: RateLimiter };
  /** Requests a minute of one address that may be refused; 0: no limit. */
  refusedPerMinute: number;
  /** The client's address. */
  addressOf(request: IncomingMessage): string;
  metrics: PreviewMetrics;
}): PreviewServer {
  const agent = openPortAgent();
  const draining = new AbortController();
  /** How many requests and WebSockets each preview has open. */
  const open = new Map<string, number>();

  function connect(preview: Preview, requestId: string): Duplex {
    o.metrics.connections.inc();
    const stream = openPortStream({ previewId: preview.id }, (requests, options) =>
      o.clients.ports.connectPreview(requests, { ...asFacade({ requestId }), ...options }),
    );
    stream.once("close", () => {
      o.metrics.connections.dec();
      o.metrics.bytes.inc({ direction: "in" }, stream.bytesRead);
      o.metrics.bytes.inc({ direction: "out" }, stream.bytesWritten);
    });
    return stream;
  }

  function targetOf(
    served: Served,
    admitted: { preview: Preview; url: string; cookie: string | undefined },
    signal: AbortSignal,
  ): ProxyTarget {
    const { preview, url, cookie } = admitted;
    const { host, protocol } = new URL(o.hosts.originOf(served.label));
    return {
      connect: () => connect(preview, served.requestId),
      pool: { agent, key: preview.id },
      path: url,
      host: preview.hostHeader === HostHeader.LOCALHOST ? `localhost:${preview.port}` : host,
      forwarded: { for: o.addressOf(served.raw), proto: protocol === "https:" ? "https" : "http", host },
      replaced: { cookie, [previewTokenHeader]: undefined },
      changeAnswer: changePreviewAnswer,
      added: [],
      signal,
    };
  }

  async function pass(served: Served): Promise<void> {
    const { raw, response, isWebSocket, label, requestId } = served;
    const { url = "/", method = "GET" } = raw;
    if (!url.startsWith("/")) throw validationError([{ field: "path", issue: "must begin with a slash" }]);
    const origin = o.hosts.originOf(label);
    const admitted = await o.access.admit({
      label,
      origin,
      method,
      url,
      headers: raw.headers,
      isWebSocket,
      requestId,
    });
    if ("location" in admitted) {
      response.writeHead(302, {
        location: admitted.location,
        "set-cookie": admitted.setCookie,
        "cache-control": "no-store",
        "referrer-policy": "no-referrer",
      });
      response.end();
      return;
    }
    const { preview } = admitted;
    const leave = await enter(preview.id);
    const { signal, close } = o.live.open(preview);
    try {
      // Requests are still answered while the server closes.
      const ends = isWebSocket ? AbortSignal.any([signal, draining.signal]) : signal;
      await (isWebSocket ? proxyUpgrade : proxyRequest)(raw, response, targetOf(served, admitted, ends));
    } finally {
      close();
      leave();
    }
  }

  /** Counts a request of a preview until it is over. Throws RATE_LIMITED. */
  async function enter(previewId: string): Promise<() => void> {
    const { allowed } = await o.limiters.ofSeconds.consume(`preview ${previewId}`, requestsPerSecond);
    if (!allowed) throw tooMany(`More than ${requestsPerSecond} requests a second`);
    const count = open.get(previewId) ?? 0;
    if (count >= maxOpen) throw tooMany(`More than ${maxOpen} requests and WebSockets at once`);
    open.set(previewId, count + 1);
    return () => {
      const left = (open.get(previewId) ?? 0) - 1;
      if (left > 0) open.set(previewId, left);
      else open.delete(previewId);
    };
  }

  /** Counts a refusal against the address, so that nobody tries out labels and tokens. */
  async function countRefusal(error: unknown, raw: IncomingMessage): Promise<unknown> {
    if (o.refusedPerMinute === 0 || !(error instanceof DomainError)) return error;
    if (![401, 404].includes(publicErrors[toPublicReason(error.reason)].status)) return error;
    const limits = networksOf(o.addressOf(raw)).map(({ name, share }) => ({
      key: `previews refused to ${name}`,
      limit: o.refusedPerMinute * share,
    }));
    const exceeded = (await o.limiters.ofMinutes.consumeAll(limits)).find(({ allowed }) => !allowed);
    if (!exceeded) return error;
    return new DomainError("RATE_LIMITED", "Too many requests from your address.", {
      retryAfterSeconds: exceeded.resetSeconds,
    });
  }

  async function serve(raw: IncomingMessage, response: ServerResponse, isWebSocket: boolean): Promise<void> {
    const requestId = requestIdOf(raw);
    const label = o.hosts.labelOf(raw) ?? "";
    response.once("close", () => {
      o.metrics.requests.inc({
        kind: isWebSocket ? "websocket" : "http",
        status: `${Math.floor(response.statusCode / 100)}xx`,
      });
    });
    try {
      await pass({ raw, response, isWebSocket, label, requestId });
    } catch (thrown) {
      if (response.headersSent || response.destroyed) raw.socket.destroy();
      else o.errors.respondRaw(await countRefusal(thrown, raw), requestId, response);
    }
  }

  return {
    isPreview: (request) => o.hosts.labelOf(request) !== undefined,
    request: (request, response) => void serve(request, response, false),
    upgrade(request, socket, head) {
      // An HTTP server's sockets are a network's.
      const connection = socket as Socket;
      connection.on("error", () => connection.destroy());
      if (head.length > 0) connection.unshift(head);
      const response = new ServerResponse(request);
      response.assignSocket(connection);
      response.once("finish", () => connection.destroySoon());
      void serve(request, response, true);
    },
    drain: () => draining.abort(new DomainError("DRAINING", "The server is shutting down.")),
  };
}

function tooMany(what: string): DomainError {
  return new DomainError("RATE_LIMITED", `${what} are too many for one preview.`, { retryAfterSeconds: 1 });
}

import { EventEmitter } from "node:events";
import type { IncomingMessage, Server } from "node:http";
import type { Duplex } from "node:stream";
import websocket from "@fastify/websocket";
import type { Logger } from "@sandgate/kit/base/logging";
import type { FastifyInstance, FastifyReply, FastifyRequest, FastifySchema, RouteOptions } from "fastify";
import type { WebSocket } from "ws";
import { validationError } from "../errors/envelope.ts";
import { endReasonOf } from "./end-reason.ts";
import type { LiveRequest, LiveRequests } from "./live-requests.ts";

/** RFC 6455, 7.4.1; 4001 is ours. */
const closeCodes = { done: 1000, drained: 1001, refused: 1008, failed: 1011, accessLost: 4001 };
/** Those of end reasons; of all others it is `accessLost`. */
const closeCodeOf: Readonly<Record<string, number>> = {
  draining: closeCodes.drained,
  validation_error: closeCodes.refused,
  upstream_error: closeCodes.failed,
  internal_error: closeCodes.failed,
};
/** How long a client may take to read what was sent and to answer the close frame; without access it has less time. */
const closeMs = 5_000;
const closeWithoutAccessMs = 500;
const heartbeatMs = 15_000;
/** The largest message that a client may send. */
const maxMessageBytes = 1024 * 1024;

/** What a frame that waits counts beside its bytes: the objects that hold it take far more memory than a small frame. */
export const frameBytes = 1_024;

export interface WebSocketRoute {
  url: string;
  config: NonNullable<RouteOptions["config"]>;
  schema: FastifySchema;
  /** The subprotocol that it speaks, which a client may leave out. */
  protocol?: string;
  /** The last check before the upgrade. */
  admit?(request: FastifyRequest): Promise<void>;
  /** The text with which a socket ends for a reason other than that it was served. */
  lastFrame?(reason: string): string;
  /** Serves an open socket, which is closed once the promise settles, or earlier when the signal aborts. */
  serve(socket: WebSocket, request: FastifyRequest, signal: AbortSignal): Promise<void>;
}

/** The upgrades that an app makes. */
export interface Upgrades {
  /**
   * For `shouldUpgradeCallback` of Node's server. A request for any other upgrade is answered as if it asked for none.
   */
  isUpgrade(request: IncomingMessage): boolean;
  /** Lets the routes added from now on be WebSockets. */
  register(app: FastifyInstance): Promise<void>;
  /** Takes a server's request for an upgrade. */
  upgrade(request: IncomingMessage, socket: Duplex, head: Buffer): void;
}

/** Whether a request asks for an upgrade to a WebSocket. */
export function isWebSocketRequest({ method, headers }: IncomingMessage): boolean {
  return method === "GET" && headers.upgrade?.toLowerCase() === "websocket";
}

/** `pathOf` is a request's path as routes have it. */
export function createUpgrades(pathOf: (request: IncomingMessage) => string): Upgrades {
  const routes: RegExp[] = [];
  const upgraded = new EventEmitter();
  return {
    upgrade(request, socket, head) {
      // A route reads all from the socket.
      if (head.length > 0) socket.unshift(head);
      upgraded.emit("upgrade", request, socket, Buffer.alloc(0));
    },
    isUpgrade(request) {
      if (!isWebSocketRequest(request)) return false;
      const [path = ""] = pathOf(request).split("?");
      return routes.some((route) => route.test(path));
    },
    async register(app) {
      await app.register(websocket, {
        options: {
          maxPayload: maxMessageBytes,
          // It only listens there, to what `upgrade` emits.
          server: upgraded as Server,
          // The route has seen that its client offers it.
          handleProtocols: (_offered, request) => protocols.get(request) ?? false,
        },
        errorHandler: (_error, socket) => socket.terminate(),
        // A drain has closed the open sockets by then, and refuses later upgrades.
        preClose: async () => undefined,
      });
      app.addHook("onRoute", ({ url, wsHandler, config }) => {
        if (!wsHandler && !config?.rules?.upgrades) return;
        routes.push(new RegExp(`^${url.replace(/:\w+/g, "[^/]+").replace("*", ".*")}/?$`));
      });
    },
  };
}

/** The subprotocols that requests are upgraded to. */
const protocols = new WeakMap<IncomingMessage, string>();

/**
 * Adds a route that is a WebSocket. Its requests pass all that others pass before they are upgraded, so they are
 * refused by the same responses, and they are logged and measured once the socket has closed.
 */
export function addWebSocketRoute(
  app: FastifyInstance,
  { live, logger }: { live: LiveRequests; logger: Logger },
  { serve, admit, lastFrame, protocol, ...route }: WebSocketRoute,
): void {
  const opening = new WeakMap<FastifyRequest, { opened: LiveRequest; reply: FastifyReply }>();

  app.route({
    ...route,
    method: "GET",
    async preHandler(request, reply) {
      if (!request.ws) throw validationError([{ field: "header.upgrade", issue: "must be websocket" }]);
      const offered = request.headers["sec-websocket-protocol"]?.split(",").map((each) => each.trim());
      if (protocol !== undefined && offered) {
        const issue = `must offer ${protocol}`;
        if (!offered.includes(protocol)) throw validationError([{ field: "header.sec-websocket-protocol", issue }]);
        protocols.set(request.raw, protocol);
      }
      await admit?.(request);
      const opened = await live.open(request, reply);
      // A client that left before it was admitted closes nothing later.
      if (opened.signal.aborted) {
        opened.close();
        throw opened.signal.reason;
      }
      opening.set(request, { opened, reply });
      // The status that is logged when the handshake fails.
      reply.raw.statusCode = 400;
      reply.raw.once("close", () => opened.close());
    },
    handler: () => {
      throw new Error("a request that is not upgraded was not refused");
    },
    async wsHandler(socket, request) {
      const { opened, reply } = opening.get(request) ?? {};
      if (!opened || !reply) return socket.terminate();
      reply.raw.statusCode = 101;
      const { signal } = opened;
      const end = (reason: string) => {
        if (lastFrame) socket.send(lastFrame(reason));
        close(socket, closeCodeOf[reason] ?? closeCodes.accessLost, reason);
      };
      // Without a reason its client has left.
      const onAbort = () => opened.endedBy && end(endReasonOf(opened));
      signal.addEventListener("abort", onAbort, { once: true });
      if (signal.aborted) onAbort();
      keepAlive(socket);
      try {
        await serve(socket, request, signal);
        close(socket, closeCodes.done, "");
      } catch (err) {
        if (signal.aborted) return;
        const reason = endReasonOf(opened, err);
        if (closeCodeOf[reason] === closeCodes.failed) {
          logger.warn({ request_id: request.id, route: request.pattern, err }, "a WebSocket failed");
        }
        end(reason);
      }
    },
  });
}

/** Closes the socket, and cuts the connection of a client that doesn't answer. */
function close(socket: WebSocket, code: number, reason: string): void {
  socket.close(code, reason);
  const answerMs = code === closeCodes.accessLost ? closeWithoutAccessMs : closeMs;
  const late = setTimeout(() => socket.terminate(), answerMs);
  socket.once("close", () => clearTimeout(late));
}

/** Pings the client, and cuts the connection when it has not answered by the next time. */
function keepAlive(socket: WebSocket): void {
  let isAlive = true;
  socket.on("pong", () => {
    isAlive = true;
  });
  const timer = setInterval(() => {
    // What isn't read may be an answer.
    if (!isAlive && !socket.isPaused) return socket.terminate();
    isAlive = false;
    socket.ping();
  }, heartbeatMs);
  socket.once("close", () => clearInterval(timer));
}

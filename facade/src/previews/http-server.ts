import { createServer, type RequestListener, type Server } from "node:http";
import type { Socket } from "node:net";
import { JoinedRequest } from "../pipeline/limits/joined-bytes.ts";
import { isWebSocketRequest, type Upgrades } from "../pipeline/live/web-sockets.ts";
import type { PreviewServer } from "./server.ts";

/** How long a client may take to send the headers of a request, and its body, unless that is passed on while it comes. */
export const receiveTimeoutMs = 60_000;
/** How long a client's connection without a request stays open. */
const idleMs = 72_000;
/** After how long a silent connection is probed, whose client may have vanished without ending it. */
const probeMs = 60_000;

/** A server whose requests on hosts of previews reach the previews alone, and all others the API alone. */
export function openHttpServer(o: {
  handler: RequestListener;
  previews: PreviewServer;
  upgrades: Pick<Upgrades, "isUpgrade" | "upgrade">;
}): Server {
  const { handler, previews, upgrades } = o;
  /** How many requests of each connection have no answer yet. While there are any, none may take the connection over. */
  const unanswered = new WeakMap<Socket, number>();
  const count = (socket: Socket, by: number) => unanswered.set(socket, (unanswered.get(socket) ?? 0) + by);
  const server = createServer(
    {
      IncomingMessage: JoinedRequest,
      // Node's own refusal of a request without a Host would not have the body of our errors.
      requireHostHeader: false,
      headersTimeout: receiveTimeoutMs,
      requestTimeout: 0,
      keepAliveTimeout: idleMs,
      keepAlive: true,
      keepAliveInitialDelay: probeMs,
      shouldUpgradeCallback: (request) =>
        !unanswered.get(request.socket) &&
        (previews.isPreview(request) ? isWebSocketRequest(request) : upgrades.isUpgrade(request)),
    },
    (request, response) => {
      count(request.socket, 1);
      response.once("close", () => count(request.socket, -1));
      (previews.isPreview(request) ? previews.request : handler)(request, response);
    },
  );
  server.on("upgrade", (request, socket, head) =>
    (previews.isPreview(request) ? previews : upgrades).upgrade(request, socket, head),
  );
  // What expects anything but 100-continue is answered as usual, instead of with Node's empty 417.
  server.on("checkExpectation", (request, response) => server.emit("request", request, response));
  return server;
}

import { once } from "node:events";
import { type Duplex, finished } from "node:stream";
import { DomainError } from "@sandgate/kit/base/domain-error";
import { PortService } from "@sandgate/proto/sandbox/v1/ports";
import type { FastifyRequest } from "fastify";
import type { Static } from "typebox";
import { callFor } from "../../pipeline/base/request-context.ts";
import { inSandbox } from "../../pipeline/errors/in-sandbox.ts";
import { addWebSocketRoute } from "../../pipeline/live/web-sockets.ts";
import { joinWebSocket } from "../../pipeline/proxy/joined-web-socket.ts";
import { openPortStream } from "../../pipeline/proxy/port-stream.ts";
import type { RoutePlugin } from "../../pipeline/route.ts";
import { WorkspaceHeaders } from "../../pipeline/validation/common-schemas.ts";
import { sandboxIdOf } from "../sandboxes/mapping.ts";
import { PortParams } from "./schemas.ts";

export const tcpRoutes: RoutePlugin = async (app, context) => {
  const { ports } = context.clients;
  /** Connections of requests that are yet to be upgraded. */
  const connections = new WeakMap<FastifyRequest, Duplex>();

  addWebSocketRoute(app, context, {
    url: "/sandboxes/:sandbox_id/ports/:port/tcp",
    config: { rules: { rpc: PortService.method.connectPort, audit: "port.connect", errors: inSandbox } },
    schema: {
      tags: ["Ports"],
      operationId: "connectPort",
      summary: "Connect to a port",
      description:
        "A WebSocket whose binary frames are the bytes of one TCP connection to the server in the sandbox, one on a loopback address included. `upstream_error` before it opens when nothing listens there. Close code 1000: the server has ended the connection; 1011: it broke off; 4001: the credential, the membership or the sandbox has ended.",
      headers: WorkspaceHeaders,
      params: PortParams,
      response: { 101: { description: "The connection is open." } },
    },
    async admit(request) {
      const { sandbox_id, port } = request.params as Static<typeof PortParams>;
      const start = { sandbox: sandboxIdOf(sandbox_id), port: Number(port) };
      const stream = openPortStream(start, (requests, options) =>
        ports.connectPort(requests, { ...callFor(request), ...options }),
      );
      connections.set(request, stream);
      // The upgrade may fail or be refused, and then nobody else listens.
      stream.on("error", () => undefined);
      finished(request.raw.socket, () => {
        if (connections.delete(request)) stream.destroy(clientLeft());
      });
      await once(stream, "connect");
    },
    async serve(socket, request, signal) {
      const stream = connections.get(request);
      connections.delete(request);
      if (!stream || stream.destroyed) throw stream?.errored ?? clientLeft();
      await joinWebSocket(socket, stream, signal);
    },
  });
};

function clientLeft(): DomainError {
  return new DomainError("UPSTREAM_ERROR", "The client has left.", { callersFault: true });
}

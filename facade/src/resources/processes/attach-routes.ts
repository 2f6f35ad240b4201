import { ProcessService } from "@sandgate/proto/sandbox/v1/processes";
import type { Static } from "typebox";
import { requireKnownOrigin } from "../../pipeline/admission/cors.ts";
import { callFor } from "../../pipeline/base/request-context.ts";
import { ofThingInSandbox } from "../../pipeline/errors/in-sandbox.ts";
import { addWebSocketRoute } from "../../pipeline/live/web-sockets.ts";
import { present } from "../../pipeline/messages/contract.ts";
import { toIsoMillis } from "../../pipeline/messages/times.ts";
import { untilPassedOn } from "../../pipeline/proxy/until-passed-on.ts";
import type { RoutePlugin } from "../../pipeline/route.ts";
import { WorkspaceHeaders } from "../../pipeline/validation/common-schemas.ts";
import { attach } from "./attach.ts";
import { idsOf } from "./mapping.ts";
import { AttachQuery, ProcessParams, Ticket } from "./schemas.ts";

const { method: rpc } = ProcessService;
const tags = ["Commands"];
const protocol = "sandgate.process.v1";

export const attachRoutes: RoutePlugin = async (app, context) => {
  const { clients, origins, publicUrl, tickets } = context;
  const { processes } = clients;

  app.post(
    "/sandboxes/:sandbox_id/processes/:process_id/tickets",
    {
      config: { rules: { rpc: rpc.createTicket, audit: "process.write", errors: ofThingInSandbox } },
      schema: {
        tags,
        summary: "Make a ticket for a browser",
        description:
          "Sent as `ticket` to attach, where browsers can't send a bearer token. It works once, within 30 s, for this process, and stands for the credential that made it.",
        headers: WorkspaceHeaders,
        params: ProcessParams,
        response: { 201: Ticket },
      },
    },
    async (request, reply) => {
      const { ticket, expiresAt } = await processes.createTicket(
        { ...idsOf(request.params), holder: tickets.holderOf(request) },
        callFor(request),
      );
      return reply.code(201).send({ ticket, expires_at: toIsoMillis(present(expiresAt)) });
    },
  );

  addWebSocketRoute(app, context, {
    url: "/sandboxes/:sandbox_id/processes/:process_id/attach",
    protocol,
    config: {
      rules: { rpc: rpc.readOutput, audit: "process.write", errors: [...ofThingInSandbox, "FORBIDDEN"], tickets: true },
    },
    schema: {
      tags,
      operationId: "attachProcess",
      summary: "Attach to a process",
      description: `A WebSocket with the subprotocol \`${protocol}\`. Binary frames begin with a byte: 0 is input, 1 is output of stdout or of the terminal, 2 of stderr. Text frames to the server are \`{ "type": "resize", "cols", "rows" }\`, \`{ "type": "signal", "signal" }\` and \`{ "type": "eof" }\`; from the server \`{ "type": "gap", "bytes" }\`, \`{ "type": "exit", "process" }\` as the last before the close code 1000, and \`{ "type": "end", "reason" }\` before any other, such as 4001 when the credential, the membership or the sandbox has ended.`,
      headers: WorkspaceHeaders,
      params: ProcessParams,
      querystring: AttachQuery,
      response: { 101: { description: "The socket is open." } },
    },
    async admit(request) {
      requireKnownOrigin(request, { origins, publicUrl });
      // Before a ticket is spent, and before there is a socket.
      await processes.getProcess(idsOf(paramsOf(request)), callFor(request));
      await tickets.spend(request);
    },
    lastFrame: (reason) => JSON.stringify({ type: "end", reason }),
    serve(socket, request, signal) {
      const { after = 0 } = request.query as Static<typeof AttachQuery>;
      const lastSignal = untilPassedOn(signal);
      return attach(socket, after, {
        processes,
        ids: idsOf(paramsOf(request)),
        call: () => callFor(request, { signal }),
        lastCall: () => callFor(request, { signal: lastSignal }),
      });
    },
  });
};

/** The route's schema says so. */
function paramsOf({ params }: { params: unknown }): Static<typeof ProcessParams> {
  return params as Static<typeof ProcessParams>;
}

import { ProcessService } from "@sandgate/proto/sandbox/v1/processes";
import { callFor } from "../../pipeline/base/request-context.ts";
import { ofThingInSandbox } from "../../pipeline/errors/in-sandbox.ts";
import type { RoutePlugin } from "../../pipeline/route.ts";
import { NoContent, WorkspaceHeaders } from "../../pipeline/validation/common-schemas.ts";
import { fromSignalName, idsOf } from "./mapping.ts";
import { ProcessParams, SignalBody, Terminal } from "./schemas.ts";

const { method: rpc } = ProcessService;
const tags = ["Commands"];
/** SIGTERM, 5 s, SIGKILL, and some time to get there. */
const endTimeoutMs = 30_000;

/** Signals, sizes and ends of processes. */
export const processControlRoutes: RoutePlugin = async (app, { clients }) => {
  const { processes } = clients;

  app.post(
    "/sandboxes/:sandbox_id/processes/:process_id/signal",
    {
      config: { rules: { rpc: rpc.signalProcess, audit: "process.signal", errors: ofThingInSandbox } },
      schema: {
        tags,
        summary: "Send a signal",
        description: "To the process group; SIGKILL ends all descendants.",
        headers: WorkspaceHeaders,
        params: ProcessParams,
        body: SignalBody,
        response: { 204: NoContent },
      },
    },
    async (request, reply) => {
      const signal = fromSignalName(request.body.signal);
      await processes.signalProcess({ ...idsOf(request.params), signal }, callFor(request));
      return reply.code(204).send(null);
    },
  );

  app.put(
    "/sandboxes/:sandbox_id/processes/:process_id/pty",
    {
      config: { rules: { rpc: rpc.resizeTerminal, audit: "process.write", errors: ofThingInSandbox } },
      schema: {
        tags,
        summary: "Resize a terminal",
        headers: WorkspaceHeaders,
        params: ProcessParams,
        body: Terminal,
        response: { 204: NoContent },
      },
    },
    async (request, reply) => {
      const { cols, rows } = request.body;
      await processes.resizeTerminal({ ...idsOf(request.params), terminal: { cols, rows } }, callFor(request));
      return reply.code(204).send(null);
    },
  );

  app.delete(
    "/sandboxes/:sandbox_id/processes/:process_id",
    {
      config: { rules: { rpc: rpc.endProcess, audit: "process.end", errors: ofThingInSandbox } },
      schema: {
        tags,
        summary: "End a process",
        description:
          "The process and all its descendants get SIGTERM, and SIGKILL 5 s later. A process that has ended already is no error.",
        headers: WorkspaceHeaders,
        params: ProcessParams,
        response: { 204: NoContent },
      },
    },
    async (request, reply) => {
      await processes.endProcess(idsOf(request.params), callFor(request, { timeoutMs: endTimeoutMs }));
      return reply.code(204).send(null);
    },
  );
};

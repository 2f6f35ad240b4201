import { ProcessService } from "@sandgate/proto/sandbox/v1/processes";
import { callFor } from "../../pipeline/base/request-context.ts";
import { inSandbox, ofThingInSandbox } from "../../pipeline/errors/in-sandbox.ts";
import type { LiveRequest } from "../../pipeline/live/live-requests.ts";
import { present } from "../../pipeline/messages/contract.ts";
import type { RoutePlugin } from "../../pipeline/route.ts";
import { WorkspaceHeaders } from "../../pipeline/validation/common-schemas.ts";
import { sandboxIdOf } from "../sandboxes/mapping.ts";
import { SandboxParams } from "../sandboxes/schemas.ts";
import { checkCommand, fromCommand, fromStateNames, idsOf, toBodyError, toProcess } from "./mapping.ts";
import {
  ProcessList,
  ProcessParams,
  ProcessQuery,
  Process as ProcessRecord,
  StartBody,
  StartHeaders,
  WaitBody,
} from "./schemas.ts";

const { method: rpc } = ProcessService;
const tags = ["Commands"];
const defaultWaitSeconds = 60;
/** How much longer than the wait itself the call may take. */
const waitGraceMs = 5_000;

export const processRoutes: RoutePlugin = async (app, { clients, live }) => {
  const { processes } = clients;

  app.post(
    "/sandboxes/:sandbox_id/processes",
    {
      config: {
        rules: {
          rpc: rpc.startProcess,
          audit: "process.start",
          errors: inSandbox,
          check: ({ body }) => checkCommand(body),
        },
      },
      schema: {
        tags,
        summary: "Start a process",
        description: "It runs on by itself. The newest 1 MiB of its output is kept.",
        headers: StartHeaders,
        params: SandboxParams,
        body: StartBody,
        response: { 201: ProcessRecord },
      },
    },
    async (request, reply) => {
      const { body } = request;
      const command = {
        ...fromCommand(body),
        stdinOpen: body.stdin_open ?? false,
        timeoutSeconds: body.timeout_seconds ?? 0,
        ...(body.pty && { terminal: body.pty }),
      };
      const started = await processes
        .startProcess({ sandbox: sandboxIdOf(request.params.sandbox_id), command }, callFor(request))
        .catch((error: unknown) => {
          throw toBodyError(error);
        });
      return reply.code(201).send(toProcess(present(started.process)));
    },
  );

  app.get(
    "/sandboxes/:sandbox_id/processes",
    {
      config: { rules: { rpc: rpc.listProcesses, audit: "process.list", errors: inSandbox } },
      schema: {
        tags,
        summary: "List processes",
        description:
          "Those that run and the last 1,000 that ended, of exec too, in the order of their start. When they are larger than 2 MiB together, each `command` and `cwd` is cut to 1 KiB.",
        headers: WorkspaceHeaders,
        params: SandboxParams,
        querystring: ProcessQuery,
        response: { 200: ProcessList },
      },
    },
    async (request) => {
      const { state, tag = "" } = request.query;
      const listed = await processes.listProcesses(
        { sandbox: sandboxIdOf(request.params.sandbox_id), states: fromStateNames(state), tag },
        callFor(request),
      );
      return { processes: listed.processes.map(toProcess) };
    },
  );

  app.get(
    "/sandboxes/:sandbox_id/processes/:process_id",
    {
      config: { rules: { rpc: rpc.getProcess, audit: "process.read", errors: ofThingInSandbox } },
      schema: {
        tags,
        summary: "Read a process",
        headers: WorkspaceHeaders,
        params: ProcessParams,
        response: { 200: ProcessRecord },
      },
    },
    async (request) => {
      const { process } = await processes.getProcess(idsOf(request.params), callFor(request));
      return toProcess(present(process));
    },
  );

  app.post(
    "/sandboxes/:sandbox_id/processes/:process_id/wait",
    {
      config: { rules: { rpc: rpc.waitProcess, audit: "process.read", errors: ofThingInSandbox, optionalBody: true } },
      schema: {
        tags,
        summary: "Wait until a process has ended",
        description: "Answers with the process when it has ended or the time is up.",
        headers: WorkspaceHeaders,
        params: ProcessParams,
        body: WaitBody,
        response: { 200: ProcessRecord },
      },
    },
    async (request, reply) => {
      const { timeout_seconds: timeoutSeconds = defaultWaitSeconds } = request.body;
      const wait = async ({ signal, checkAccess }: LiveRequest) => {
        const { process } = await processes.waitProcess(
          { ...idsOf(request.params), timeoutSeconds },
          callFor(request, { signal, timeoutMs: timeoutSeconds * 1000 + waitGraceMs }),
        );
        // The caller may have lost access since the last check.
        await checkAccess();
        return toProcess(present(process));
      };
      return live.run(request, reply, wait);
    },
  );
};

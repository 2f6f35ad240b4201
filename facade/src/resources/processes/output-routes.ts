import { create } from "@bufbuild/protobuf";
import { type Process, ProcessState } from "@sandgate/proto/helper/v1/process";
import { ProcessService, ReadOutputResponseSchema } from "@sandgate/proto/sandbox/v1/processes";
import type { FastifyRequest } from "fastify";
import { callFor } from "../../pipeline/base/request-context.ts";
import { ofThingInSandbox } from "../../pipeline/errors/in-sandbox.ts";
import { eventStreamHeaders } from "../../pipeline/live/event-stream.ts";
import type { LiveRequest } from "../../pipeline/live/live-requests.ts";
import { present } from "../../pipeline/messages/contract.ts";
import type { RoutePlugin } from "../../pipeline/route.ts";
import { acceptBytes } from "../../pipeline/validation/body-parser.ts";
import { WorkspaceHeaders } from "../../pipeline/validation/common-schemas.ts";
import { eventStream, eventsDescription, sendProcessEvents, toServerEvents, wantsEvents } from "./events.ts";
import { inputTimeoutMs, maxInputBytes } from "./input.ts";
import { idsOf, toProcess } from "./mapping.ts";
import { createOutputEncoder, type OutputItem } from "./output.ts";
import { InputQuery, OutputHeaders, OutputQuery, ProcessOutput, ProcessParams, TakenInput } from "./schemas.ts";

const { method: rpc } = ProcessService;
const tags = ["Commands"];
/** How much longer than the wait itself the call may take. */
const waitGraceMs = 5_000;

export const outputRoutes: RoutePlugin = async (app, { clients, live, logger }) => {
  const { processes } = clients;
  type Ids = ReturnType<typeof idsOf>;

  async function find(request: FastifyRequest, ids: Ids): Promise<Process> {
    return present((await processes.getProcess(ids, callFor(request))).process);
  }

  /**
   * What there is after an offset, and the process as it was then: one that has ended has no more output than that, unless
   * the page is full.
   */
  async function readPage(
    request: FastifyRequest,
    o: { ids: Ids; after: number; waitSeconds: number; form: "lossless" | "base64"; signal: AbortSignal },
  ) {
    const encoder = createOutputEncoder(o.form);
    const events: OutputItem[] = [];
    let next = o.after;
    let ended: Process | undefined;
    const read = async (waitSeconds: number) => {
      const call = callFor(request, { signal: o.signal, timeoutMs: waitSeconds * 1000 + waitGraceMs });
      const page = processes.readOutput({ ...o.ids, after: BigInt(next), follow: false, waitSeconds }, call);
      for await (const { event } of page) {
        if (!event) continue;
        if (event.event.case === "exit") ended = event.event.value;
        else next = Number(event.offset);
        events.push(...encoder.add(event));
      }
    };
    await read(o.waitSeconds);
    let process = ended ?? (await find(request, o.ids));
    if (!ended && process.state !== ProcessState.RUNNING) {
      await read(0);
      process = ended ?? process;
    }
    return { events: [...events, ...encoder.end()], next, process: toProcess(process) };
  }

  async function* startAndFollow(request: FastifyRequest, ids: Ids, after: number, signal: AbortSignal) {
    const process = await find(request, ids);
    yield create(ReadOutputResponseSchema, {
      event: { offset: BigInt(after), event: { case: "start", value: process } },
    });
    yield* processes.readOutput(
      { ...ids, after: BigInt(after), follow: true },
      callFor(request, { signal, timeoutMs: 0 }),
    );
  }

  app.get(
    "/sandboxes/:sandbox_id/processes/:process_id/output",
    {
      config: { rules: { rpc: rpc.readOutput, audit: "process.read", errors: ofThingInSandbox } },
      schema: {
        tags,
        summary: "Read or follow a process's output",
        description: `What there is after \`after\`, 1 MiB of it at most. With \`Accept: text/event-stream\` it is followed live. ${eventsDescription}`,
        headers: OutputHeaders,
        params: ProcessParams,
        querystring: OutputQuery,
        response: {
          200: {
            description: "The output; or the stream.",
            content: { "application/json": { schema: ProcessOutput }, "text/event-stream": eventStream },
          },
        },
      },
    },
    async (request, reply) => {
      const ids = idsOf(request.params);
      const { after: asked = 0, wait_seconds: waitSeconds = 0, encoding } = request.query;
      const { "last-event-id": lastId = "" } = request.headers;
      const after = lastId === "" ? asked : Number(lastId);
      const form = encoding === "base64" ? "base64" : "lossless";
      if (!wantsEvents(request.headers)) {
        const read = async ({ signal, checkAccess }: LiveRequest) => {
          const page = await readPage(request, { ids, after, waitSeconds, form, signal });
          // The caller may have lost access since the last check.
          await checkAccess();
          return reply.send(page);
        };
        return live.run(request, reply, read);
      }
      if (request.method === "HEAD") return reply.headers(eventStreamHeaders).send("");
      const follow = (opened: LiveRequest) => {
        const events = toServerEvents(startAndFollow(request, ids, after, opened.signal), form);
        return sendProcessEvents({ request, reply, logger }, opened, events);
      };
      return live.run(request, reply, follow);
    },
  );

  await app.register(async (bytes: typeof app) => {
    acceptBytes(bytes);
    bytes.post(
      "/sandboxes/:sandbox_id/processes/:process_id/stdin",
      {
        bodyLimit: maxInputBytes,
        config: { rules: { rpc: rpc.writeStdin, audit: "process.write", errors: ofThingInSandbox, bytes: true } },
        schema: {
          tags,
          summary: "Write to a process's standard input",
          description:
            "1 MiB at most. While the process reads nothing and the pipe is full, it answers after 30 s with the offset that it reached. The end of the input follows by itself if all bytes before it were taken.",
          headers: WorkspaceHeaders,
          params: ProcessParams,
          querystring: InputQuery,
          response: { 200: TakenInput },
        },
      },
      async (request, reply) => {
        const { offset, eof = false } = request.query;
        const { body } = request;
        const write = async ({ signal }: LiveRequest) => {
          const written = await processes.writeStdin(
            {
              ...idsOf(request.params),
              data: body instanceof Uint8Array ? body : new Uint8Array(),
              eof,
              ...(offset !== undefined && { offset: BigInt(offset) }),
            },
            callFor(request, { signal, timeoutMs: inputTimeoutMs }),
          );
          return { offset: Number(written.offset), closed: written.closed };
        };
        return live.run(request, reply, write);
      },
    );
  });
};

import { Readable } from "node:stream";
import type { Violation } from "@sandgate/kit/base/domain-error";
import { type TailTelemetryResponse, TelemetryService } from "@sandgate/proto/telemetry/v1/telemetry";
import type { FastifyReply, FastifyRequest } from "fastify";
import { callFor, signedInOf } from "../../pipeline/base/request-context.ts";
import {
  eventStreamHeaders,
  formatEvent,
  formatId,
  sendEvents,
  sendNoEvents,
} from "../../pipeline/live/event-stream.ts";
import type { LiveRequest } from "../../pipeline/live/live-requests.ts";
import { present } from "../../pipeline/messages/contract.ts";
import { parseMoment, toTimestamp } from "../../pipeline/messages/times.ts";
import type { RoutePlugin } from "../../pipeline/route.ts";
import { exampleMoment, WorkspaceHeaders } from "../../pipeline/validation/common-schemas.ts";
import { sandboxIdOf } from "../sandboxes/mapping.ts";
import { SandboxParams } from "../sandboxes/schemas.ts";
import { createMonitoringAnswer } from "./answer.ts";
import { createLargeReads } from "./large-reads.ts";
import { fromStreamName, toLogEntry, toMetricPoint } from "./mapping.ts";
import { Monitoring, MonitoringQuery, ResumingHeaders, StreamQuery } from "./schemas.ts";

const { method: rpc } = TelemetryService;
const tags = ["Monitoring"];
const hourMicros = 3_600_000_000n;
/** Bytes of log lines in a page: a few milliseconds of work for this process and for telemetry. */
const pageBytes = 256 * 1024;

export const monitoringRoutes: RoutePlugin = async (app, { clients, live, logger }) => {
  const { sandbox, telemetry } = clients;
  const largeReads = createLargeReads();

  app.get(
    "/sandbox/monitoring/:sandbox_id",
    {
      config: {
        rules: {
          rpc: rpc.queryTelemetry,
          audit: "sandbox.read_logs",
          errors: ["SANDBOX_NOT_FOUND"],
          check: checkWindow,
        },
      },
      schema: {
        tags,
        operationId: "getMonitoring",
        summary: "Read a sandbox's logs and metrics",
        description: "The newest rows of the time window, oldest first.",
        headers: WorkspaceHeaders,
        params: SandboxParams,
        querystring: MonitoringQuery,
        response: { 200: Monitoring },
      },
    },
    async (request, reply) => {
      const { query } = request;
      const { signal, stop } = watchDisconnect(reply);
      try {
        const { id, name } = await findSandbox(request, request.params.sandbox_id);
        const { since, until } = windowOf(query);
        const answer = createMonitoringAnswer({ id, name });
        /** Returns the page's bytes in the answer, and the next page's token, empty after the last. */
        const readPage = async (pageToken: string): Promise<{ bytes: number; next: string }> => {
          const asked = { since: toTimestamp(since), until: toTimestamp(until), limit: query.limit };
          const page = await telemetry.queryTelemetry(
            { sandboxId: id, ...asked, ...readSelection(query), pageBytes, pageToken },
            callFor(request, { signal }),
          );
          return { bytes: answer.add(page), next: page.nextPageToken };
        };
        const first = await readPage("");
        const readOlder = async (hold: (bytes: number) => boolean) => {
          for (let page = first; hold(page.bytes) && page.next !== ""; ) page = await readPage(page.next);
        };
        const { user } = signedInOf(request);
        if (first.next !== "") await largeReads.run({ userId: user.id, response: reply.raw, signal, read: readOlder });
        return sendJson(reply, answer.toJson());
      } finally {
        stop();
      }
    },
  );

  app.get(
    "/sandbox/monitoring/:sandbox_id/stream",
    {
      config: { rules: { rpc: rpc.tailTelemetry, audit: "sandbox.read_logs", errors: ["SANDBOX_NOT_FOUND"] } },
      schema: {
        tags,
        operationId: "streamMonitoring",
        summary: "Follow a sandbox's logs and metrics",
        description:
          "Server-Sent Events: `log` with a `LogEntry` as data, and `metric` with a `MetricPoint`. A comment comes every 15 s. Send the id of the last event as Last-Event-ID to continue after it; without it the stream starts now, and its first id, which comes without an event, is where.",
        headers: ResumingHeaders,
        params: SandboxParams,
        querystring: StreamQuery,
        response: {
          200: {
            description: "The stream.",
            content: { "text/event-stream": { schema: { type: "string", examples: [exampleEvents] } } },
          },
        },
      },
    },
    async (request, reply) => {
      const { id } = await findSandbox(request, request.params.sandbox_id);
      if (request.method === "HEAD") return reply.headers(eventStreamHeaders).send("");
      const position = request.headers["last-event-id"] ?? "";
      const follow = async ({ signal }: LiveRequest) => {
        const rows = telemetry.tailTelemetry(
          { sandboxId: id, position, ...readSelection(request.query) },
          callFor(request, { signal, timeoutMs: 0 }),
        );
        const onError = (err: unknown) =>
          logger.warn({ request_id: request.id, route: request.pattern, err }, "a stream ended early");
        await sendEvents(reply, { events: eventsOf(rows), signal, onError });
        return reply;
      };
      return live.run(request, reply, follow, () => sendNoEvents(reply));
    },
  );

  /** The sandbox service decides whether the caller may see a sandbox; telemetry knows only ids. */
  async function findSandbox(request: FastifyRequest, idOrName: string): Promise<{ id: string; name: string }> {
    const { sandbox: found } = await sandbox.getSandbox({ idOrName: sandboxIdOf(idOrName) }, callFor(request));
    return present(found);
  }
};

const exampleEvents = [
  formatEvent({ id: "…", event: "log", data: { timestamp: exampleMoment, stream: "stdout", log: "hello" } }),
  formatEvent({ id: "…", event: "metric", data: { timestamp: exampleMoment, cpu_usage: 1.5, memory_usage: 4096 } }),
].join("");

async function* eventsOf(rows: AsyncIterable<TailTelemetryResponse>): AsyncGenerator<string> {
  for await (const { position: id, row } of rows) {
    if (row.case === undefined) yield formatId(id);
    if (row.case === "log") yield formatEvent({ id, event: "log", data: toLogEntry(row.value) });
    if (row.case === "metric") yield formatEvent({ id, event: "metric", data: toMetricPoint(row.value) });
  }
}

/** A signal that aborts when the client disconnects, until it is stopped. */
function watchDisconnect({ raw }: FastifyReply): { signal: AbortSignal; stop(): void } {
  const gone = new AbortController();
  const onClose = () => gone.abort();
  raw.once("close", onClose);
  if (raw.destroyed) onClose();
  return { signal: gone.signal, stop: () => void raw.off("close", onClose) };
}

/** Sends JSON chunk by chunk, since joining the chunks would copy a large answer. */
function sendJson(reply: FastifyReply, json: readonly Buffer[]): FastifyReply {
  const length = json.reduce((sum, chunk) => sum + chunk.length, 0);
  return reply
    .type("application/json; charset=utf-8")
    .header("content-length", length)
    .send(Readable.from(json, { objectMode: false }));
}

interface Selection {
  stream?: "stdout" | "stderr" | undefined;
  include: string;
}

function readSelection({ stream, include }: Selection) {
  return {
    stream: fromStreamName(stream),
    includeLogs: include.includes("logs"),
    includeMetrics: include.includes("metrics"),
  };
}

/** The time window in microseconds, with defaults for what is missing. */
function windowOf(query: { since?: string | undefined; until?: string | undefined }): { since: bigint; until: bigint } {
  const now = BigInt(Date.now()) * 1000n;
  return {
    since: (query.since === undefined ? undefined : parseMoment(query.since)) ?? now - hourMicros,
    until: (query.until === undefined ? undefined : parseMoment(query.until)) ?? now,
  };
}

function checkWindow(request: FastifyRequest): Violation[] {
  // Fastify's parser makes a record; a field that is not a time has been reported already.
  const { since, until } = request.query as Record<string, unknown>;
  for (const moment of [since, until]) {
    if (moment !== undefined && (typeof moment !== "string" || parseMoment(moment) === undefined)) return [];
  }
  const window = windowOf({
    since: typeof since === "string" ? since : undefined,
    until: typeof until === "string" ? until : undefined,
  });
  return window.since < window.until ? [] : [{ field: "query.since", issue: "must be before until" }];
}

import { once } from "node:events";
import type { ServerResponse } from "node:http";
import { setTimeout } from "node:timers/promises";
import type { TailTelemetryResponse } from "@sandgate/proto/telemetry/v1/telemetry";
import type { FastifyReply } from "fastify";
import { toLogEntry, toMetricPoint } from "./mapping.ts";

const heartbeatMs = 15_000;
/** How long an answer without rows is held back, since telemetry may yet refuse the stream. */
const refusalMs = 250;

export const eventStreamHeaders = {
  "content-type": "text/event-stream; charset=utf-8",
  "cache-control": "no-store",
  // Else nginx would hold rows back.
  "x-accel-buffering": "no",
};

/** Sends the rows until they or the caller end. Throws before anything is sent when the rows are refused at once. */
export async function sendRows(
  reply: FastifyReply,
  rows: AsyncIterator<TailTelemetryResponse>,
  signal: AbortSignal,
): Promise<void> {
  let next = rows.next();
  await Promise.race([next, setTimeout(refusalMs, undefined, { signal })]);
  const { raw } = reply.headers(eventStreamHeaders);
  raw.writeHead(200, reply.getHeaders() as Record<string, string>);
  raw.write(": stream\n\n");
  const heartbeat = setInterval(() => {
    if (!raw.writableNeedDrain) raw.write(": heartbeat\n\n");
  }, heartbeatMs);
  try {
    for (let row = await next; !row.done; row = await next) {
      await send(raw, formatEvent(row.value), signal);
      next = rows.next();
    }
  } finally {
    clearInterval(heartbeat);
  }
}

async function send(raw: ServerResponse, text: string, signal: AbortSignal): Promise<void> {
  if (text !== "" && !raw.write(text)) await once(raw, "drain", { signal });
}

/** An event of the HTML standard's "event stream" form. JSON has no line breaks, and positions are the service's own. */
function formatEvent({ position, row }: TailTelemetryResponse): string {
  switch (row.case) {
    case "log":
      return `id: ${position}\nevent: log\ndata: ${JSON.stringify(toLogEntry(row.value))}\n\n`;
    case "metric":
      return `id: ${position}\nevent: metric\ndata: ${JSON.stringify(toMetricPoint(row.value))}\n\n`;
    default:
      return "";
  }
}

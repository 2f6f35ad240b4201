import { once } from "node:events";
import type { ServerResponse } from "node:http";
import { setTimeout } from "node:timers/promises";
import type { TailTelemetryResponse } from "@sandgate/proto/telemetry/v1/telemetry";
import type { FastifyReply } from "fastify";
import { toLogEntry, toMetricPoint } from "./mapping.ts";

const heartbeatMs = 15_000;
/** How long the headers wait for a first row, since telemetry may still refuse the stream. */
const refusalMs = 250;

export const eventStreamHeaders = {
  "content-type": "text/event-stream; charset=utf-8",
  "cache-control": "no-store",
  // Otherwise nginx would buffer rows.
  "x-accel-buffering": "no",
};

/** Sends the rows until they end or the caller disconnects. Throws, with nothing sent, when the stream is refused at once. */
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

/** An event in the format of the HTML standard. Neither JSON nor a position has line breaks. */
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

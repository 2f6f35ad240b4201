import { once } from "node:events";
import type { ServerResponse } from "node:http";
import { setTimeout } from "node:timers/promises";
import type { FastifyReply } from "fastify";

const heartbeatMs = 15_000;
/** How long the headers wait for the first event. Until then the source can still refuse the stream. */
const refusalMs = 250;

export const eventStreamHeaders = {
  "content-type": "text/event-stream; charset=utf-8",
  "cache-control": "no-store",
  // Otherwise nginx would buffer events.
  "x-accel-buffering": "no",
};

const start = ": stream\n\n";

/** An event in the format of the HTML standard. Neither the id nor JSON has line breaks. */
export function formatEvent({ id, event, data }: { id: string; event: string; data: unknown }): string {
  return `id: ${id}\nevent: ${event}\ndata: ${JSON.stringify(data)}\n\n`;
}

/**
 * Sends Server-Sent Events until there are no more or the signal aborts. Throws, with nothing sent, when they are
 * refused at once; a later error ends the stream and goes to `onError`.
 */
export async function sendEvents(
  reply: FastifyReply,
  o: { events: AsyncIterator<string>; signal: AbortSignal; onError(error: unknown): void },
): Promise<void> {
  const { events, signal } = o;
  let next = events.next();
  await Promise.race([next, setTimeout(refusalMs, undefined, { signal })]);
  const { raw } = reply.headers(eventStreamHeaders);
  reply.hijack();
  raw.writeHead(200, reply.getHeaders() as Record<string, string>);
  raw.write(start);
  const heartbeat = setInterval(() => {
    if (!raw.writableNeedDrain) raw.write(": heartbeat\n\n");
  }, heartbeatMs);
  try {
    for (let event = await next; !event.done; event = await next) {
      await send(raw, event.value, signal);
      next = events.next();
    }
  } catch (error) {
    if (!signal.aborted) o.onError(error);
  } finally {
    clearInterval(heartbeat);
    raw.end();
  }
}

/** Answers with a stream that ends at once. An EventSource reconnects after an end, and never after an error. */
export function sendNoEvents(reply: FastifyReply): FastifyReply {
  return reply.headers(eventStreamHeaders).send(start);
}

async function send(raw: ServerResponse, text: string, signal: AbortSignal): Promise<void> {
  if (!raw.write(text)) await once(raw, "drain", { signal });
}

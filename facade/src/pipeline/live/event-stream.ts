import { once } from "node:events";
import type { ServerResponse } from "node:http";
import { setTimeout as delay } from "node:timers/promises";
import type { FastifyReply } from "fastify";

const heartbeatMs = 15_000;
/** How long the headers wait for the first event. Until then the source can still refuse the stream. */
const refusalMs = 250;
/** A client that takes nothing for so long is cut off. */
const stalledMs = 30_000;
/** How long a client may take to read what was sent, once its stream was ended or has failed. */
const endMs = 500;

export const eventStreamHeaders = {
  "content-type": "text/event-stream; charset=utf-8",
  "cache-control": "no-store",
  // Otherwise nginx would buffer events.
  "x-accel-buffering": "no",
};

const start = ": stream\n\n";

/** An event in the format of the HTML standard. Neither the id nor JSON has line breaks. */
export function formatEvent({ id, event, data }: { id?: string; event: string; data: unknown }): string {
  return `${id === undefined ? "" : `id: ${id}\n`}event: ${event}\ndata: ${JSON.stringify(data)}\n\n`;
}

/** An id alone: a client that reconnects sends it, and hands on no event for it (HTML standard, 9.2.6). */
export function formatId(id: string): string {
  return `id: ${id}\n\n`;
}

/**
 * Sends Server-Sent Events until there are no more or the signal aborts. Throws, with nothing sent, when they are
 * refused at once; a later error ends the stream and goes to `onError`.
 */
export async function sendEvents(
  reply: FastifyReply,
  o: {
    events: AsyncIterator<string>;
    signal: AbortSignal;
    onError(error: unknown): void;
    /** The first event comes without delay, so the headers wait for it however long the source takes to refuse. */
    startsAtOnce?: true;
    /** The last event of a stream that was ended, or that failed. */
    lastEvent?(error: unknown): string;
  },
): Promise<void> {
  const { events, signal } = o;
  let next = events.next();
  await (o.startsAtOnce ? next : Promise.race([next, delay(refusalMs, undefined, { signal })]));
  const { raw } = reply.headers(eventStreamHeaders);
  if (raw.destroyed) throw signal.reason;
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
    end(raw, stalledMs);
  } catch (error) {
    if (!signal.aborted) o.onError(error);
    if (o.lastEvent && !raw.destroyed) raw.write(o.lastEvent(error));
    end(raw, endMs);
  } finally {
    clearInterval(heartbeat);
  }
}

/** Answers with a stream that ends at once. An EventSource reconnects after an end, and never after an error. */
export function sendNoEvents(reply: FastifyReply): FastifyReply {
  return reply.headers(eventStreamHeaders).send(start);
}

async function send(raw: ServerResponse, text: string, signal: AbortSignal): Promise<void> {
  if (raw.write(text)) return;
  const stalled = setTimeout(() => raw.destroy(), stalledMs);
  try {
    await once(raw, "drain", { signal });
  } finally {
    clearTimeout(stalled);
  }
}

/** Ends a response, and cuts off a client that takes longer to read it. */
function end(raw: ServerResponse, unreadMs: number): void {
  raw.end();
  const unread = setTimeout(() => raw.destroy(), unreadMs);
  raw.once("close", () => clearTimeout(unread));
}

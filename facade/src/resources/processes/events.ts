import type { Logger } from "@sandgate/kit/base/logging";
import type { OutputEvent } from "@sandgate/proto/helper/v1/process";
import type { FastifyReply, FastifyRequest } from "fastify";
import { endReasonOf } from "../../pipeline/live/end-reason.ts";
import { formatEvent, sendEvents } from "../../pipeline/live/event-stream.ts";
import type { LiveRequest } from "../../pipeline/live/live-requests.ts";
import { toProcess } from "./mapping.ts";
import { createOutputEncoder, type OutputItem, outputBrokeOff } from "./output.ts";

/** What a route that streams events of a process answers, in the reference. */
export const eventStream = {
  schema: {
    type: "string",
    examples: [
      [
        formatEvent({ id: "0", event: "start", data: { id: "…", state: "running" } }),
        formatEvent({ id: "6", event: "output", data: { stream: "stdout", data: "hello\n", encoding: "utf8" } }),
        formatEvent({ id: "6", event: "exit", data: { id: "…", state: "exited", exit_code: 0 } }),
      ].join(""),
    ],
  },
};
export const eventsDescription =
  "Server-Sent Events: `start` with the `Process` as data, `output` with `stream`, `data` and `encoding`, `gap` with the number of `bytes` that are gone, and as the last `exit` with the `Process`, or `end` with the `reason` why the stream ended before. An event's id is the number of bytes of output so far. A comment comes every 15 s.";

/** Whether the client asks for events rather than for JSON. */
export function wantsEvents({ accept }: { accept?: string | undefined }): boolean {
  const types = accept?.split(",").map((each) => each.split(";")[0]?.trim().toLowerCase()) ?? [];
  return types.find((type) => type === "text/event-stream" || type === "application/json") === "text/event-stream";
}

/** The events of a process as a stream has them, with `exit` as the last. */
export async function* toServerEvents(
  messages: AsyncIterable<{ event?: OutputEvent | undefined }>,
  form: Parameters<typeof createOutputEncoder>[0],
): AsyncGenerator<string> {
  const encoder = createOutputEncoder(form);
  for await (const { event } of messages) {
    if (!event) continue;
    const id = String(event.offset);
    if (event.event.case === "start") yield formatEvent({ id, event: "start", data: toProcess(event.event.value) });
    const isLast = event.event.case === "exit";
    const items = isLast ? encoder.end() : encoder.add(event);
    if (items.length > 0) yield items.map(formatItem).join("");
    if (event.event.case !== "exit") continue;
    yield formatEvent({ id, event: "exit", data: toProcess(event.event.value) });
    return;
  }
  throw outputBrokeOff();
}

function formatItem({ id, type, ...data }: OutputItem): string {
  return formatEvent({ id: String(id), event: type, data });
}

/** Sends the events of a process, and why they end before it does. */
export async function sendProcessEvents(
  { request, reply, logger }: { request: FastifyRequest; reply: FastifyReply; logger: Logger },
  opened: LiveRequest,
  events: AsyncGenerator<string>,
): Promise<FastifyReply> {
  await sendEvents(reply, {
    events,
    signal: opened.signal,
    startsAtOnce: true,
    onError: (err) => logger.warn({ request_id: request.id, route: request.pattern, err }, "a stream ended early"),
    lastEvent: (error) => formatEvent({ event: "end", data: { reason: endReasonOf(opened, error) } }),
  });
  return reply;
}

import { DomainError } from "@sandgate/kit/base/domain-error";
import { ChangeType } from "@sandgate/proto/helper/v1/file";
import { FileService, type WatchFilesResponse } from "@sandgate/proto/sandbox/v1/files";
import { callFor } from "../../pipeline/base/request-context.ts";
import { ofThingInSandbox } from "../../pipeline/errors/in-sandbox.ts";
import { endReasonOf } from "../../pipeline/live/end-reason.ts";
import { eventStreamHeaders, formatEvent, sendEvents } from "../../pipeline/live/event-stream.ts";
import type { LiveRequest } from "../../pipeline/live/live-requests.ts";
import type { RoutePlugin } from "../../pipeline/route.ts";
import { WorkspaceHeaders } from "../../pipeline/validation/common-schemas.ts";
import { SandboxParams } from "../sandboxes/schemas.ts";
import { checkQueryPath, placeOf, readBytes } from "./paths.ts";
import { WatchQuery } from "./schemas.ts";

const { method: rpc } = FileService;

/** Changes of files as they happen. */
export const fileWatchRoutes: RoutePlugin = async (app, { clients: { files }, live, logger }) => {
  app.get(
    "/sandboxes/:sandbox_id/files/watch",
    {
      config: { rules: { rpc: rpc.watchFiles, audit: "file.read", errors: ofThingInSandbox, check: checkQueryPath } },
      schema: {
        tags: ["Files"],
        summary: "Follow the changes of a file or folder",
        description:
          "Server-Sent Events: `ready` once changes are noticed, then `create`, `write`, `delete`, `move` and `attrib`, with `type`, `path` and `to` as data, `to` where a move led (and `path_base64`, `to_base64` where one isn't UTF-8). `overflow` says that changes were lost. `end` with the `reason` comes last where the stream is ended. A comment comes every 15 s.",
        headers: WorkspaceHeaders,
        params: SandboxParams,
        querystring: WatchQuery,
        response: {
          200: {
            description: "The stream.",
            content: { "text/event-stream": { schema: { type: "string", examples: [exampleEvents] } } },
          },
        },
      },
    },
    async (request, reply) => {
      const place = placeOf(request);
      if (request.method === "HEAD") {
        // Refused as GET is, without a stream.
        await files.getEntry({ ...place, follow: true }, callFor(request));
        return reply.headers(eventStreamHeaders).send("");
      }
      const asked = { ...place, recursive: request.query.recursive };
      const follow = async (opened: LiveRequest) => {
        const { signal } = opened;
        await sendEvents(reply, {
          events: eventsOf(files.watchFiles(asked, callFor(request, { signal, timeoutMs: 0 }))),
          signal,
          startsAtOnce: true,
          onError: (err) =>
            logger.warn({ request_id: request.id, route: request.pattern, err }, "a stream ended early"),
          lastEvent: (error) => formatEvent({ event: "end", data: { reason: endReasonOf(opened, error) } }),
        });
        return reply;
      };
      return live.run(request, reply, follow);
    },
  );
};

const types: Readonly<Record<number, string>> = {
  [ChangeType.CREATE]: "create",
  [ChangeType.WRITE]: "write",
  [ChangeType.DELETE]: "delete",
  [ChangeType.MOVE]: "move",
  [ChangeType.ATTRIB]: "attrib",
  [ChangeType.OVERFLOW]: "overflow",
};

const nowhere = new Uint8Array();

const exampleEvents = [
  formatChange("ready", nowhere, nowhere),
  formatChange("create", Buffer.from("/tmp/report.txt"), nowhere),
  formatChange("move", Buffer.from("/tmp/report.txt"), Buffer.from("/tmp/old.txt")),
].join("");

async function* eventsOf(messages: AsyncIterable<WatchFilesResponse>): AsyncGenerator<string> {
  for await (const { event } of messages) {
    if (event.case === "ready") yield formatChange("ready", nowhere, nowhere);
    const type = event.case === "change" ? types[event.value.type] : undefined;
    if (event.case === "change" && type) yield formatChange(type, event.value.path, event.value.to);
  }
  throw new DomainError("UPSTREAM_ERROR", "The changes of the files broke off.");
}

function formatChange(type: string, path: Uint8Array, to: Uint8Array): string {
  return formatEvent({ event: type, data: { type, ...toField("path", path), ...toField("to", to) } });
}

function toField(name: string, bytes: Uint8Array): Record<string, string | null> {
  if (bytes.length === 0) return { [name]: null };
  const { text, base64 } = readBytes(bytes);
  return { [name]: text, ...(base64 !== undefined && { [`${name}_base64`]: base64 }) };
}

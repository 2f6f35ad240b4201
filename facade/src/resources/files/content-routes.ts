import type { ReadResponse_Start } from "@sandgate/proto/helper/v1/file";
import { FileService } from "@sandgate/proto/sandbox/v1/files";
import type { FastifyReply } from "fastify";
import { callFor } from "../../pipeline/base/request-context.ts";
import { ofThingInSandbox } from "../../pipeline/errors/in-sandbox.ts";
import { receiveBody, sendBody } from "../../pipeline/live/bodies.ts";
import type { LiveRequest } from "../../pipeline/live/live-requests.ts";
import { present } from "../../pipeline/messages/contract.ts";
import type { RoutePlugin } from "../../pipeline/route.ts";
import { leaveBodies } from "../../pipeline/validation/body-parser.ts";
import { SandboxParams } from "../sandboxes/schemas.ts";
import { checkChange, preconditionOf, rangeOf } from "./conditions.ts";
import { beginDownload, contentRangeOf, reportBreak } from "./downloads.ts";
import { fromMode, toDownloadHeaders, toEntry, toEtag } from "./mapping.ts";
import { checkQueryPath, placeOf } from "./paths.ts";
import { bytesOf, Entry, PathQuery, RangeHeaders, WriteHeaders, WriteQuery } from "./schemas.ts";
import { sizeOf, toParts } from "./uploads.ts";

const { method: rpc } = FileService;
const tags = ["Files"];

/** The contents of files. */
export const fileContentRoutes: RoutePlugin = async (app, { clients, live, logger }) => {
  const { files } = clients;
  leaveBodies(app);

  app.get(
    "/sandboxes/:sandbox_id/files",
    {
      config: { rules: { rpc: rpc.readFile, audit: "file.read", errors: ofThingInSandbox, check: checkQueryPath } },
      schema: {
        tags,
        summary: "Read a file",
        description:
          "Answers with the bytes of the file, or with one range of them. A download that fails breaks the connection off, so part of a file is never taken for the whole.",
        headers: RangeHeaders,
        params: SandboxParams,
        querystring: PathQuery,
        response: {
          200: bytesOf("The file.", "application/octet-stream"),
          206: bytesOf("The range of the file.", "application/octet-stream"),
        },
      },
    },
    (request, reply) => {
      const download = async ({ signal }: LiveRequest) => {
        const parts = files.readFile(
          { ...placeOf(request), ...rangeOf(request) },
          callFor(request, { signal, timeoutMs: 0 }),
        );
        const { start, chunks } = await beginDownload(parts);
        describeFile(reply, start);
        if (request.method === "HEAD") return reply.send("");
        await sendBody(reply, { chunks, signal, onError: reportBreak(logger, request) });
        return reply;
      };
      return live.run(request, reply, download);
    },
  );

  app.put(
    "/sandboxes/:sandbox_id/files",
    {
      config: { rules: { rpc: rpc.writeFile, audit: "file.write", errors: ofThingInSandbox, check: checkChange } },
      schema: {
        tags,
        summary: "Write a file",
        description:
          "The body is the new content, of any type. Whoever reads the file meanwhile gets the old or the new content whole, and a body that is cut off changes nothing. A file that is replaced keeps its owner and, without `mode`, its permissions; a new one has `0644`. Through a link its target is written.",
        headers: WriteHeaders,
        params: SandboxParams,
        querystring: WriteQuery,
        response: { 200: { ...Entry, description: "It was replaced." }, 201: { ...Entry, description: "It is new." } },
      },
    },
    async (request, reply) => {
      const { mode, parents } = request.query;
      const start = {
        ...placeOf(request),
        ...fromMode(mode),
        parents,
        precondition: preconditionOf(request),
        ...sizeOf(request),
      };
      const upload = ({ signal }: LiveRequest) =>
        receiveBody(request, reply, signal, (chunks, failing) =>
          files.writeFile(toParts(start, chunks), callFor(request, { signal: failing, timeoutMs: 0 })),
        );
      return live.run(request, reply, upload).then(({ entry, created }) => {
        const written = present(entry);
        return reply
          .code(created ? 201 : 200)
          .headers(toEtag(written))
          .send(toEntry(written));
      });
    },
  );
};

function describeFile(reply: FastifyReply, start: ReadResponse_Start): void {
  const { length } = start;
  const entry = present(start.entry);
  reply.type("application/octet-stream").headers({
    "accept-ranges": "bytes",
    ...toDownloadHeaders(entry.path),
    ...toEtag(entry),
    ...(length !== undefined && { "content-length": String(length) }),
  });
  const range = contentRangeOf(start);
  if (range !== undefined) reply.code(206).header("content-range", range);
}

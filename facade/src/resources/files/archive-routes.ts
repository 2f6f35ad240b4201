import type { Violation } from "@sandgate/kit/base/domain-error";
import { FileService, type ReadArchiveResponse } from "@sandgate/proto/sandbox/v1/files";
import type { FastifyRequest } from "fastify";
import { callFor } from "../../pipeline/base/request-context.ts";
import { ofThingInSandbox } from "../../pipeline/errors/in-sandbox.ts";
import { receiveBody, sendBody } from "../../pipeline/live/bodies.ts";
import type { LiveRequest } from "../../pipeline/live/live-requests.ts";
import type { RoutePlugin } from "../../pipeline/route.ts";
import { leaveBodies } from "../../pipeline/validation/body-parser.ts";
import { NoContent, WorkspaceHeaders } from "../../pipeline/validation/common-schemas.ts";
import { SandboxParams } from "../sandboxes/schemas.ts";
import { reportBreak } from "./downloads.ts";
import { toDownloadHeaders } from "./mapping.ts";
import { checkQueryPath, placeOf } from "./paths.ts";
import { ArchiveHeaders, bytesOf, PathQuery } from "./schemas.ts";
import { sizeOf, toParts } from "./uploads.ts";

const { method: rpc } = FileService;
const tags = ["Files"];
const mediaType = "application/x-tar";

/** Files and folders as tar archives. */
export const fileArchiveRoutes: RoutePlugin = async (app, { clients: { files }, live, logger }) => {
  leaveBodies(app);

  app.get(
    "/sandboxes/:sandbox_id/files/archive",
    {
      config: { rules: { rpc: rpc.readArchive, audit: "file.read", errors: ofThingInSandbox, check: checkQueryPath } },
      schema: {
        tags,
        summary: "Read a file or folder as an archive",
        description:
          "A tar archive (pax) of the file, or of what is in the folder, with modes, owners and times. Links are in it as links; sockets, FIFOs and devices are left out. An archive that fails breaks the connection off, so part of one is never taken for the whole.",
        headers: WorkspaceHeaders,
        params: SandboxParams,
        querystring: PathQuery,
        response: { 200: bytesOf("The archive.", mediaType) },
      },
    },
    (request, reply) => {
      const download = async ({ signal }: LiveRequest) => {
        const place = placeOf(request);
        const chunks = await begin(files.readArchive(place, callFor(request, { signal, timeoutMs: 0 })));
        reply.type(mediaType).headers(toDownloadHeaders(place.path, ".tar"));
        if (request.method === "HEAD") return reply.send("");
        await sendBody(reply, { chunks, signal, onError: reportBreak(logger, request) });
        return reply;
      };
      return live.run(request, reply, download);
    },
  );

  app.put(
    "/sandboxes/:sandbox_id/files/archive",
    {
      config: {
        rules: { rpc: rpc.writeArchive, audit: "file.archive", errors: ofThingInSandbox, check: checkArchive },
      },
      schema: {
        tags,
        summary: "Extract an archive into a folder",
        description:
          "The body is a tar archive, compressed if `Content-Encoding` is `gzip`. Modes and times are kept, owners if the sandbox's user is root. Links stay as they are, but nothing is written through one that leads out of the folder. An entry that is a device or a FIFO, or whose name is absolute or has `..`, and an archive that is cut are refused; what came before stays.",
        headers: ArchiveHeaders,
        params: SandboxParams,
        querystring: PathQuery,
        response: { 204: NoContent },
      },
    },
    async (request, reply) => {
      const start = {
        ...placeOf(request),
        gzip: codingOf(request) === "gzip",
        ...sizeOf(request),
      };
      const upload = ({ signal }: LiveRequest) =>
        receiveBody(request, reply, signal, (chunks, failing) =>
          files.writeArchive(toParts(start, chunks), callFor(request, { signal: failing, timeoutMs: 0 })),
        );
      await live.run(request, reply, upload);
      return reply.code(204).send(null);
    },
  );
};

/** The data of an archive. It throws before the answer begins when the archive can't be begun. */
async function begin(parts: AsyncIterable<ReadArchiveResponse>): Promise<AsyncIterable<Uint8Array>> {
  const messages = parts[Symbol.asyncIterator]();
  const first = await messages.next();
  async function* readData() {
    for (let next = first; !next.done; next = await messages.next()) yield next.value.data;
  }
  return readData();
}

/** RFC 9110, 8.4: codings are case-insensitive, and `x-gzip` is `gzip`. */
function codingOf({ headers }: Pick<FastifyRequest, "headers">): string {
  const coding = headers["content-encoding"]?.trim().toLowerCase() ?? "";
  return coding === "x-gzip" ? "gzip" : coding;
}

function checkArchive(request: FastifyRequest): Violation[] {
  const isKnown = ["", "identity", "gzip"].includes(codingOf(request));
  return [
    ...checkQueryPath(request),
    ...(isKnown ? [] : [{ field: "header.content-encoding", issue: "must be gzip or identity" }]),
  ];
}

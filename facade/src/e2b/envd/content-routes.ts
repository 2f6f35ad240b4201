import { posix } from "node:path";
import { pipeline, Readable } from "node:stream";
import { createGunzip, createGzip } from "node:zlib";
import { invalid } from "@sandgate/kit/base/domain-error";
import { FileService } from "@sandgate/proto/sandbox/v1/files";
import type { FastifyRequest } from "fastify";
import { type Static, Type } from "typebox";
import type { App } from "../../pipeline/base/app.ts";
import { callFor } from "../../pipeline/base/request-context.ts";
import type { RouteRules } from "../../pipeline/base/route-rules.ts";
import { receiveBody, sendBody } from "../../pipeline/live/bodies.ts";
import type { LiveRequest } from "../../pipeline/live/live-requests.ts";
import type { RouteContext } from "../../pipeline/route.ts";
import { leaveBodies } from "../../pipeline/validation/body-parser.ts";
import { rangeOf } from "../../resources/files/conditions.ts";
import { beginDownload, contentRangeOf, reportBreak } from "../../resources/files/downloads.ts";
import { toDownloadHeaders } from "../../resources/files/mapping.ts";
import { toParts } from "../../resources/files/uploads.ts";
import { sayFileError } from "../errors.ts";
import { contentTypeOf } from "./calls.ts";
import type { Folders, Place } from "./folders.ts";
import { type Written, writeForm } from "./forms.ts";

const { method: rpc } = FileService;
const chunkBytes = 128 * 1024;

const FileQuery = Type.Object({
  path: Type.Optional(Type.String()),
  username: Type.Optional(Type.String({ maxLength: 255 })),
  signature: Type.Optional(Type.String({ maxLength: 255 })),
  signature_expiration: Type.Optional(Type.String({ maxLength: 20 })),
});
type Query = Static<typeof FileQuery>;

/** The contents of files: envd's `/files`. */
export async function addContentRoutes(
  app: App,
  { clients: { files }, live, logger, folders }: RouteContext & { folders: Folders },
  signIn: NonNullable<RouteRules["signIn"]>,
): Promise<void> {
  leaveBodies(app);

  app.get(
    "/files",
    {
      config: { rules: { rpc: rpc.readFile, audit: "file.read", signIn, sayError: sayFileError } },
      schema: { hide: true, querystring: FileQuery },
    },
    (request, reply) => {
      const download = async ({ signal }: LiveRequest) => {
        const { sandboxId: sandbox, query } = request;
        const { path, user } = await find(request, query);
        const call = callFor(request, { signal, timeoutMs: 0 });
        const parts = files.readFile({ sandbox, user, path: Buffer.from(path), ...rangeOf(request) }, call);
        const { start, chunks } = await beginDownload(parts);
        const { length, partial } = start;
        const isZipped = !partial && wantsGzip(request) && length !== 0n;
        reply
          .type("application/octet-stream")
          .headers({ "accept-ranges": "bytes", vary: "accept-encoding", ...toDownloadHeaders(Buffer.from(path)) });
        if (isZipped) reply.header("content-encoding", "gzip");
        else if (length !== undefined) reply.header("content-length", String(length));
        const range = contentRangeOf(start);
        if (range !== undefined) reply.code(206).header("content-range", range);
        if (request.method === "HEAD") return reply.send("");
        const onError = reportBreak(logger, request);
        await sendBody(reply, { chunks: isZipped ? zip(chunks) : chunks, signal, onError });
        return reply;
      };
      return live.run(request, reply, download);
    },
  );

  app.post(
    "/files",
    {
      config: { rules: { rpc: rpc.writeFile, audit: "file.write", signIn, sayError: sayFileError } },
      schema: { hide: true, querystring: FileQuery },
    },
    (request, reply) => {
      refuseMetadata(request);
      const upload = ({ signal }: LiveRequest) =>
        receiveBody(request, reply, signal, async (chunks, failing) => {
          const write = (path: string, content: AsyncIterable<Uint8Array>) =>
            writeFile(request, path, content, failing);
          const type = contentTypeOf(request.raw.rawHeaders);
          const body = isZippedBody(request) ? unzip(chunks) : chunks;
          if (/^multipart\/form-data\b/i.test(type)) return writeForm(type, body, request.query.path, write);
          if (!/^application\/octet-stream\b/i.test(type)) {
            throw invalid("header.content-type", "must be multipart/form-data or application/octet-stream");
          }
          return [await write(request.query.path ?? "", body)];
        });
      return live.run(request, reply, upload).then((written) => reply.code(200).send(written));
    },
  );

  function find(request: FastifyRequest, { username = "" }: Query, path = pathOf(request)): Promise<Place> {
    if (path.includes("\0")) throw invalid("query.path", "must not contain a NUL character");
    return folders.find(request.sandboxId, username, path, callFor(request));
  }

  async function writeFile(
    request: FastifyRequest<{ Querystring: Query }>,
    given: string,
    content: AsyncIterable<Uint8Array>,
    signal: AbortSignal,
  ): Promise<Written> {
    if (given === "") throw invalid("query.path", "is required");
    const { path, user } = await find(request, request.query, given);
    const start = { sandbox: request.sandboxId, user, path: Buffer.from(path), parents: true };
    await files.writeFile(toParts(start, content), callFor(request, { signal, timeoutMs: 0 }));
    return { name: posix.basename(path), type: "file", path };
  }
}

function pathOf({ query }: FastifyRequest): string {
  const { path = "" }: Query = Object(query);
  return path;
}

/** What is kept of a file here is its content alone. */
function refuseMetadata({ headers }: FastifyRequest): void {
  const name = Object.keys(headers).find((each) => each.startsWith("x-metadata-"));
  if (name !== undefined) throw invalid(`header.${name}`, "is not supported: files have no metadata here");
}

function isZippedBody({ headers }: FastifyRequest): boolean {
  const { "content-encoding": encoding = "identity" } = headers;
  if (/^gzip$/i.test(encoding)) return true;
  if (/^identity$/i.test(encoding)) return false;
  throw invalid("header.content-encoding", "must be gzip, if any");
}

function wantsGzip({ headers: { "accept-encoding": accepted } }: FastifyRequest): boolean {
  return typeof accepted === "string" && /^gzip(?:;q=1)?$/i.test(accepted.trim());
}

function zip(data: AsyncIterable<Uint8Array>): AsyncIterable<Uint8Array> {
  return through(data, createGzip({ chunkSize: chunkBytes }));
}

async function* unzip(data: AsyncIterable<Uint8Array>): AsyncGenerator<Uint8Array> {
  try {
    yield* through(data, createGunzip({ chunkSize: chunkBytes }));
  } catch (error) {
    if (error instanceof Error && "code" in error && String(error.code).startsWith("Z_")) {
      throw invalid("body", "must be a complete gzip stream, as Content-Encoding says");
    }
    throw error;
  }
}

function through(data: AsyncIterable<Uint8Array>, stream: NodeJS.ReadWriteStream): AsyncIterable<Uint8Array> {
  pipeline(Readable.from(data), stream, () => {});
  return stream as unknown as AsyncIterable<Uint8Array>;
}

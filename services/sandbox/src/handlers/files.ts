import { pipeline, Readable } from "node:stream";
import { createGunzip } from "node:zlib";
import type { HandlerContext, ServiceImpl } from "@connectrpc/connect";
import { DomainError, invalid } from "@sandgate/kit/base/domain-error";
import { mebibyte } from "@sandgate/kit/base/sizes";
import type { ReadResponse_Start } from "@sandgate/proto/helper/v1/file";
import type { FileService } from "@sandgate/proto/sandbox/v1/files";
import { createBodies, createStallLimit } from "../operations/bodies.ts";
import { type Asked, type Files, filesOf, fileUse } from "../operations/file-calls.ts";
import { type OpenData, readParts, toParts, type Way } from "../operations/file-contents.ts";
import { boundEntry } from "../operations/helper-files.ts";
import {
  auditedStream,
  type HelperUse,
  type SandboxHelper,
  type SandboxHelpers,
} from "../operations/sandbox-helpers.ts";
import { createFileEntryHandlers } from "./file-entries.ts";
import { createWatchHandlers } from "./watches.ts";

const maxBodiesOfSandbox = 32;
/** How long nothing of a content may move. The facade's limit for clients is shorter. */
const stallMs = 90_000;
const gunzipChunkBytes = 128 * 1024;

export interface FileHandlersContext {
  helpers: SandboxHelpers;
  limits: { fileMb: number; archiveMb: number };
}

/** What answers for files, of which it moves the contents itself. */
export function createFileHandlers({ helpers, limits }: FileHandlersContext): ServiceImpl<typeof FileService> {
  const bodies = createBodies(maxBodiesOfSandbox);

  /** Takes a content in. */
  async function receive<T>(
    context: HandlerContext,
    asked: Asked,
    use: HelperUse,
    work: (client: Files, way: Way) => Promise<T>,
  ): Promise<T> {
    return helpers.call(context, asked.sandbox, async (helper) => {
      const release = bodies.take(helper.sandbox.id);
      const stall = createStallLimit(helper.signal, stallMs);
      const ended = new AbortController();
      const way = { stall, openData: helper.openData, ended: ended.signal };
      try {
        return await helper.audited(use, () => work(filesOf(helper, asked), way));
      } catch (error) {
        throw stall.signal.aborted ? stall.signal.reason : error;
      } finally {
        ended.abort();
        stall.stop();
        release();
      }
    });
  }

  /** Gives a content out. */
  function send<T>(
    context: HandlerContext,
    asked: Asked,
    work: (client: Files, way: { signal: AbortSignal; openData: OpenData }) => AsyncGenerator<T>,
    use?: HelperUse,
  ): AsyncGenerator<T> {
    return helpers.stream(context, asked.sandbox, async function* (helper: SandboxHelper) {
      const release = bodies.take(helper.sandbox.id);
      const stall = createStallLimit(helper.signal, stallMs);
      try {
        const parts = work(filesOf(helper, asked), { signal: stall.signal, openData: helper.openData });
        for await (const part of use ? auditedStream(helper, use, parts) : parts) {
          stall.moved();
          yield part;
        }
      } catch (error) {
        throw stall.signal.aborted ? stall.signal.reason : error;
      } finally {
        stall.stop();
        release();
      }
    });
  }

  return {
    ...createFileEntryHandlers({ helpers }),
    ...createWatchHandlers({ helpers }),

    async *readFile(request, context) {
      const { path, range, ifRange, user } = request;
      yield* send(context, request, async function* (client, way) {
        let left: bigint | undefined;
        for await (const part of readParts(client, { path, ifRange, user, ...(range && { range }) }, way)) {
          if (part.case === "start") {
            left = boundStart(part.value).length;
            yield { part };
          } else if (part.case === "data") {
            if (left !== undefined) left -= BigInt(part.value.length);
            if (left !== undefined && left < 0n) throw new DomainError("UPSTREAM_ERROR", "The file is too long.");
            yield { part };
          }
        }
        if (left !== undefined && left > 0n) throw new DomainError("UPSTREAM_ERROR", "The file is too short.");
      });
    },

    async writeFile(requests, context) {
      const { start, data } = await readContent(requests);
      const { path, mode, parents, precondition, size, user } = start;
      requireSize(size, limits.fileMb);
      return receive(context, start, fileUse("file.write", path), async (client, way) => {
        const first = {
          path,
          parents,
          user,
          maxBytes: BigInt(limits.fileMb * mebibyte),
          ...(mode !== undefined && { mode }),
          ...(precondition && { precondition }),
        };
        const parts = toParts(first, limit(data, limits.fileMb), way);
        const { entry, created } = await client.write(parts, { signal: way.stall.signal, timeoutMs: 0 });
        return { entry: boundEntry(entry), created };
      });
    },

    async *readArchive(request, context) {
      const { path } = request;
      const read = async function* (client: Files, { signal }: { signal: AbortSignal }) {
        for await (const { data } of client.readArchive({ path }, { signal, timeoutMs: 0 })) yield { data };
      };
      yield* send(context, request, read, fileUse("file.archive", path));
    },

    async writeArchive(requests, context) {
      const { start, data } = await readContent(requests);
      const { path, gzip, size } = start;
      requireSize(size, limits.archiveMb);
      return receive(context, start, fileUse("file.archive", path), async (client, way) => {
        const first = { path, maxBytes: BigInt(limits.archiveMb * mebibyte) };
        const content = limit(gzip ? decompress(data) : data, limits.archiveMb);
        const { entries } = await client.writeArchive(toParts(first, content, way), {
          signal: way.stall.signal,
          timeoutMs: 0,
        });
        return { entries };
      });
    },
  };
}

type Part<Start> =
  | { case: "start"; value: Start }
  | { case: "data"; value: Uint8Array }
  | { case: "commit"; value: boolean }
  | { case: undefined; value?: undefined };

/** The first message of a content, and the data that follows. It fails when that ends without a `commit`. */
async function readContent<Start>(
  requests: AsyncIterable<{ part: Part<Start> }>,
): Promise<{ start: Start; data: AsyncGenerator<Uint8Array> }> {
  const messages = requests[Symbol.asyncIterator]();
  const first = await messages.next();
  if (first.done || first.value.part.case !== "start") throw invalid("start", "must come first");
  const { value: start } = first.value.part;
  async function* readData() {
    for (let next = await messages.next(); !next.done; next = await messages.next()) {
      const { part } = next.value;
      if (part.case === "commit") return;
      if (part.case !== "data") throw invalid("data", "must follow");
      yield part.value;
    }
    throw invalid("body", "must be complete");
  }
  return { start, data: readData() };
}

function requireSize(size: bigint | undefined, maxMb: number): void {
  if (size !== undefined && size > BigInt(maxMb * mebibyte)) throw tooLarge(maxMb);
}

async function* limit<T extends Uint8Array>(data: AsyncIterable<T>, maxMb: number): AsyncGenerator<T> {
  let left = maxMb * mebibyte;
  for await (const chunk of data) {
    left -= chunk.length;
    if (left < 0) throw tooLarge(maxMb);
    yield chunk;
  }
}

function tooLarge(maxMb: number): DomainError {
  return invalid("body", `must not be larger than ${maxMb} MiB`);
}

/** What gzip made the data of. */
async function* decompress(data: AsyncIterable<Uint8Array>): AsyncGenerator<Uint8Array> {
  const gunzip = createGunzip({ chunkSize: gunzipChunkBytes });
  pipeline(Readable.from(data), gunzip, () => {});
  try {
    for await (const chunk of gunzip) yield chunk;
  } catch (error) {
    if (error instanceof DomainError) throw error;
    if (error instanceof Error && "code" in error && String(error.code).startsWith("Z_")) {
      throw invalid("body", "must be a complete gzip stream, as Content-Encoding says");
    }
    throw error;
  }
}

function boundStart(start: ReadResponse_Start): ReadResponse_Start {
  boundEntry(start.entry);
  const { length = 0n, offset } = start;
  if (length < 0n || offset < 0n || length + offset > BigInt(Number.MAX_SAFE_INTEGER)) {
    throw new DomainError("UPSTREAM_ERROR", "The sandbox's helper told of no part of a file.");
  }
  return start;
}

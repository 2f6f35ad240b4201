import type { Logger } from "@sandgate/kit/base/logging";
import type { ReadResponse_Start } from "@sandgate/proto/helper/v1/file";
import type { ReadFileResponse } from "@sandgate/proto/sandbox/v1/files";
import type { FastifyRequest } from "fastify";
import { present } from "../../pipeline/messages/contract.ts";

/** The first part of a file that is read, and the data that follows. */
export async function beginDownload(
  parts: AsyncIterable<ReadFileResponse>,
): Promise<{ start: ReadResponse_Start; chunks: AsyncIterable<Uint8Array> }> {
  const messages = parts[Symbol.asyncIterator]();
  const { value: first }: IteratorResult<ReadFileResponse, undefined> = await messages.next();
  if (first?.part.case !== "start") throw new Error("A file that is read begins with no start.");
  async function* readData() {
    for (let next = await messages.next(); !next.done; next = await messages.next()) {
      const { part } = next.value;
      if (part.case === "data") yield part.value;
    }
  }
  return { start: first.part.value, chunks: readData() };
}

/** The Content-Range header of an answer with a part of a file; undefined for a whole one. */
export function contentRangeOf({ entry, length, offset, partial }: ReadResponse_Start): string | undefined {
  if (!partial || length === undefined) return undefined;
  return `bytes ${offset}-${offset + length - 1n}/${present(entry).size}`;
}

/** Logs why the download of a request broke off. */
export function reportBreak(logger: Logger, request: FastifyRequest) {
  return (err: unknown) => logger.warn({ request_id: request.id, route: request.pattern, err }, "a download broke off");
}

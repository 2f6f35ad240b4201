import { randomBytes } from "node:crypto";
import type { Socket } from "node:net";
import type { MessageInitShape } from "@bufbuild/protobuf";
import { free } from "@sandgate/kit/base/memory";
import { mebibyte } from "@sandgate/kit/base/sizes";
import type { ReadRequestSchema, ReadResponse } from "@sandgate/proto/helper/v1/file";
import type { StallLimit } from "./bodies.ts";
import type { Files } from "./file-calls.ts";
import type { HelperConnection } from "./helper-connections.ts";

/** From here on a content is worth a data connection, which takes some milliseconds to open. */
const largeBytes = mebibyte;
const idBytes = 16;

export type OpenData = HelperConnection["openData"];

/** How a content goes to the helper. */
export interface Way {
  stall: StallLimit;
  openData: OpenData;
  /** Aborts when the call has ended. */
  ended: AbortSignal;
}

/**
 * The messages of a content for the helper: `commit` is sent once all of the data has come. What is beyond the first MiB
 * goes by a data connection, where one can be had, and is freed then.
 */
export async function* toParts<Start>(start: Start, data: AsyncIterable<Uint8Array>, { stall, openData, ended }: Way) {
  yield { part: { case: "start" as const, value: start } };
  /** Until it was tried. */
  let open = openData;
  let sent = 0;
  let connection: Socket | undefined;
  try {
    for await (const value of data) {
      stall.moved();
      if (value.length === 0) continue;
      if (connection) {
        // The helper's answer tells why it takes no more.
        if (!(await write(connection, value))) return;
        free(value);
        continue;
      }
      yield { part: { case: "data" as const, value } };
      sent += value.length;
      if (!open || sent < largeBytes) continue;
      const id = randomBytes(idBytes);
      connection = await open(id, AbortSignal.any([stall.signal, ended]));
      open = undefined;
      if (connection) yield { part: { case: "dataConnection" as const, value: id } };
    }
  } catch (error) {
    stall.fail(error);
    throw error;
  }
  stall.moved();
  if (connection && !(await end(connection))) return;
  yield { part: { case: "commit" as const, value: true } };
}

/** Resolves with whether it was written. */
function write(socket: Socket, data: Uint8Array): Promise<boolean> {
  return new Promise((resolve) => void socket.write(data, (error) => resolve(!error)));
}

/** The same once all that was written has left. */
function end(socket: Socket): Promise<boolean> {
  return new Promise((resolve) => void socket.end(() => resolve(socket.writableFinished)));
}

/** The parts of a file. What is large comes by a data connection, where one can be had. */
export async function* readParts(
  client: Pick<Files, "read">,
  request: MessageInitShape<typeof ReadRequestSchema>,
  { signal, openData }: { signal: AbortSignal; openData: OpenData },
): AsyncGenerator<ReadResponse["part"]> {
  const left = new AbortController();
  const within = AbortSignal.any([signal, left.signal]);
  const dataConnection = openData && randomBytes(idBytes);
  try {
    const asked = { ...request, ...(dataConnection && { dataConnection }) };
    const messages = client.read(asked, { signal: within, timeoutMs: 0 })[Symbol.asyncIterator]();
    // By hand, since `for await` would wait for the call's end before `left` can bring it about.
    for (let next = await messages.next(); !next.done; next = await messages.next()) {
      const { part } = next.value;
      if (part.case !== "start" || !part.value.byDataConnection || !dataConnection) {
        yield part;
        continue;
      }
      const socket = await openData?.(dataConnection, within);
      if (!socket) {
        left.abort();
        yield* readParts(client, request, { signal, openData: undefined });
        return;
      }
      yield part;
      for await (const value of socket) yield { case: "data", value };
    }
  } finally {
    left.abort();
  }
}

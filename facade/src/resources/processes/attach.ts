import type { CallOptions, Client } from "@connectrpc/connect";
import { hasReason, invalid } from "@sandgate/kit/base/domain-error";
import type { ProcessService, WriteStdinResponse } from "@sandgate/proto/sandbox/v1/processes";
import type { WebSocket } from "ws";
import { frameBytes } from "../../pipeline/live/web-sockets.ts";
import { inputTimeoutMs, writeAll } from "./input.ts";
import { fromSignalName, toProcess } from "./mapping.ts";
import { outputBrokeOff, pieceOf } from "./output.ts";

/** The first byte of a binary frame. */
const inputByte = 0;
const outputBytes = { stdout: Buffer.of(1), pty: Buffer.of(1), stderr: Buffer.of(2) };
/** What may wait to be sent before no more output is read, and to be passed on before no more frames are. */
const maxWaitingBytes = 256 * 1024;
const maxSize = 1_000;

interface Attached {
  processes: Client<typeof ProcessService>;
  ids: { sandbox: string; processId: string };
  /** Options of a call that lasts as long as the socket. */
  call: () => CallOptions;
  /** Of one that passes on what the client sent, and may last a little longer. */
  lastCall: () => CallOptions;
}

/** Connects a socket to a process until that has ended. Output before `after` is left out. */
export async function attach(socket: WebSocket, after: number, o: Attached): Promise<void> {
  const failed = Promise.withResolvers<never>();
  receive(socket, o, failed.reject);
  await Promise.race([sendOutput(socket, after, o), failed.promise]);
}

async function sendOutput(socket: WebSocket, after: number, { processes, ids, call }: Attached): Promise<void> {
  const send = createSend(socket);
  const output = processes.readOutput({ ...ids, after: BigInt(after), follow: true }, { ...call(), timeoutMs: 0 });
  for await (const { event } of output) {
    if (!event) continue;
    if (event.event.case === "exit") {
      await send(JSON.stringify({ type: "exit", process: toProcess(event.event.value) }));
      return;
    }
    const piece = pieceOf(event);
    if (!piece) continue;
    if ("gap" in piece) await send(JSON.stringify({ type: "gap", bytes: piece.gap }));
    else await send(Buffer.concat([outputBytes[piece.stream], piece.bytes]));
  }
  throw outputBrokeOff();
}

/** Sends frames. Waits for the client once much is on the way to it; one that answers no ping is cut off. */
function createSend(socket: WebSocket): (frame: string | Buffer) => Promise<void> {
  let unsent = 0;
  return async (frame) => {
    const isWaiting = unsent > maxWaitingBytes;
    const bytes = frame.length + frameBytes;
    unsent += bytes;
    const sent = new Promise<void>((resolve, reject) => {
      socket.send(frame, (error) => {
        unsent -= bytes;
        if (error) reject(error);
        else resolve();
      });
    });
    if (isWaiting) await sent;
    else sent.catch(() => undefined);
  };
}

/** Passes on what the client sends: input in its order, and beside it all else in its own. */
function receive(socket: WebSocket, { processes, ids, lastCall }: Attached, fail: (error: unknown) => void): void {
  const input = createInput((data, eof) =>
    processes.writeStdin({ ...ids, data, eof }, { ...lastCall(), timeoutMs: inputTimeoutMs }),
  );
  let acted: Promise<unknown> = Promise.resolve();
  let waiting = 0;

  function count(bytes: number): void {
    waiting += bytes;
    if (waiting > maxWaitingBytes) socket.pause();
    else if (socket.isPaused) socket.resume();
  }

  function act(frame: Control): Promise<unknown> {
    return frame.type === "resize"
      ? processes.resizeTerminal({ ...ids, terminal: { cols: frame.cols, rows: frame.rows } }, lastCall())
      : processes.signalProcess({ ...ids, signal: fromSignalName(frame.signal) }, lastCall());
  }

  async function take(bytes: Buffer, isBinary: boolean): Promise<void> {
    if (isBinary) return input.add(inputOf(bytes), false);
    const frame = parseFrame(bytes.toString());
    if (frame.type === "eof") return input.add(Buffer.alloc(0), true);
    const done = acted.catch(() => undefined).then(() => act(frame));
    acted = done;
    await done;
  }

  socket.on("message", (data, isBinary) => {
    const bytes = Buffer.isBuffer(data)
      ? data
      : Buffer.concat([data].flat().map((each) => Buffer.from(each as ArrayBuffer)));
    count(bytes.length + frameBytes);
    take(bytes, isBinary)
      // The process may have ended meanwhile, or have closed its input: its output tells.
      .catch((error: unknown) => !hasReason(error, "CONFLICT") && fail(error))
      .finally(() => count(-bytes.length - frameBytes));
  });
}

function inputOf(frame: Buffer): Buffer {
  if (frame[0] !== inputByte) throw invalid("frame", "must begin with the byte 0");
  return frame.subarray(1);
}

type Control = { type: "resize"; cols: number; rows: number } | { type: "signal"; signal: string };

function parseFrame(text: string): Control | { type: "eof" } {
  const { type, cols, rows, signal }: Partial<Record<string, unknown>> = Object(parseJson(text));
  if (type === "eof") return { type };
  if (type === "signal" && typeof signal === "string") return { type, signal };
  if (type === "resize" && isSize(cols) && isSize(rows)) return { type, cols, rows };
  throw invalid("frame", "must be a resize, a signal or an eof");
}

function parseJson(text: string): unknown {
  try {
    return JSON.parse(text);
  } catch {
    throw invalid("frame", "must be JSON");
  }
}

function isSize(value: unknown): value is number {
  return typeof value === "number" && Number.isInteger(value) && value >= 1 && value <= maxSize;
}

interface Input {
  /** Settles once all of it was taken. */
  add(data: Buffer, eof: boolean): Promise<void>;
}

interface Part {
  frames: Buffer[];
  eof: boolean;
  written: Promise<void>;
}

/** Writes input in its order, each part until all of it was taken. What waits for that is joined into the next part. */
function createInput(write: (data: Uint8Array, eof: boolean) => Promise<WriteStdinResponse>): Input {
  let last: Promise<unknown> = Promise.resolve();
  let next: Part | undefined;
  /** Bytes of input before the next, as far as this socket knows: others may write too. */
  let known: bigint | undefined;

  async function writePart({ frames, eof }: Part): Promise<void> {
    known ??= (await write(new Uint8Array(), false)).offset;
    const { offset } = await writeAll(write, Buffer.concat(frames), eof, known);
    known = offset;
  }

  function startPart(): Part {
    const part: Part = {
      frames: [],
      eof: false,
      written: last
        .catch(() => undefined)
        .then(() => {
          if (next === part) next = undefined;
          return writePart(part);
        }),
    };
    last = part.written;
    return part;
  }

  return {
    add(data, eof) {
      next ??= startPart();
      const part = next;
      part.frames.push(data);
      if (eof) {
        part.eof = true;
        next = undefined;
      }
      return part.written;
    },
  };
}

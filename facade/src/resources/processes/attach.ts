import type { CallOptions, Client } from "@connectrpc/connect";
import { hasReason, invalid } from "@sandgate/kit/base/domain-error";
import type { ProcessService } from "@sandgate/proto/sandbox/v1/processes";
import type { WebSocket } from "ws";
import { fromSignalName, toProcess } from "./mapping.ts";
import { outputBrokeOff, pieceOf } from "./output.ts";

/** The first byte of a binary frame. */
const inputByte = 0;
const outputBytes = { stdout: Buffer.of(1), pty: Buffer.of(1), stderr: Buffer.of(2) };
/** What may wait to be sent before no more output is read, and to be written before no more frames are. */
const maxWaitingBytes = 256 * 1024;
const maxSize = 1_000;

interface Attached {
  processes: Client<typeof ProcessService>;
  ids: { sandbox: string; processId: string };
  /** Options of a call that lasts as long as the socket. */
  call: () => CallOptions;
}

/** Connects a socket to a process until that has ended. Output before `after` is left out. */
export async function attach(socket: WebSocket, after: number, o: Attached): Promise<void> {
  const failed = Promise.withResolvers<never>();
  receive(socket, o, failed.reject);
  await Promise.race([sendOutput(socket, after, o), failed.promise]);
}

async function sendOutput(socket: WebSocket, after: number, { processes, ids, call }: Attached): Promise<void> {
  const output = processes.readOutput({ ...ids, after: BigInt(after), follow: true }, { ...call(), timeoutMs: 0 });
  for await (const { event } of output) {
    if (!event) continue;
    if (event.event.case === "exit") {
      await send(socket, JSON.stringify({ type: "exit", process: toProcess(event.event.value) }));
      return;
    }
    const piece = pieceOf(event);
    if (!piece) continue;
    if ("gap" in piece) await send(socket, JSON.stringify({ type: "gap", bytes: piece.gap }));
    else await send(socket, Buffer.concat([outputBytes[piece.stream], piece.bytes]));
  }
  throw outputBrokeOff();
}

/** Waits for the client once much is on the way to it. One that answers no ping is cut off. */
async function send(socket: WebSocket, frame: string | Buffer): Promise<void> {
  const isWaiting = socket.bufferedAmount > maxWaitingBytes;
  const sent = new Promise<void>((resolve, reject) => {
    socket.send(frame, (error) => (error ? reject(error) : resolve()));
  });
  if (isWaiting) await sent;
  else sent.catch(() => undefined);
}

/** Passes on what the client sends: input in its order, all else at once. */
function receive(socket: WebSocket, { processes, ids, call }: Attached, fail: (error: unknown) => void): void {
  const input = createInput({
    write: (data, eof) => processes.writeStdin({ ...ids, data, eof }, { ...call(), timeoutMs: 45_000 }),
    onWaiting(bytes) {
      if (bytes > maxWaitingBytes) socket.pause();
      else if (socket.isPaused) socket.resume();
    },
  });

  async function act(text: string): Promise<void> {
    const frame = parseFrame(text);
    switch (frame.type) {
      case "resize":
        await processes.resizeTerminal({ ...ids, terminal: { cols: frame.cols, rows: frame.rows } }, call());
        return;
      case "signal":
        await processes.signalProcess({ ...ids, signal: fromSignalName(frame.signal) }, call());
        return;
      case "eof":
        return input.add(Buffer.alloc(0), true);
    }
  }

  socket.on("message", (data, isBinary) => {
    const bytes = Buffer.isBuffer(data)
      ? data
      : Buffer.concat([data].flat().map((each) => Buffer.from(each as ArrayBuffer)));
    const done = isBinary ? addInput(input, bytes) : act(bytes.toString());
    // The process may have ended meanwhile, or have closed its input: its output tells.
    done.catch((error: unknown) => !hasReason(error, "CONFLICT") && fail(error));
  });
}

async function addInput(input: Input, frame: Buffer): Promise<void> {
  if (frame[0] !== inputByte) throw invalid("frame", "must begin with the byte 0");
  await input.add(frame.subarray(1), false);
}

type Frame = { type: "resize"; cols: number; rows: number } | { type: "signal"; signal: string } | { type: "eof" };

function parseFrame(text: string): Frame {
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

/** Writes input in its order, each part until all of it was taken. */
function createInput(o: {
  write(data: Uint8Array, eof: boolean): Promise<{ offset: bigint; closed: boolean }>;
  onWaiting(bytes: number): void;
}): Input {
  let last: Promise<unknown> = Promise.resolve();
  let waiting = 0;
  /** Bytes of input before the next, as far as this socket knows: others may write too. */
  let known: number | undefined;

  async function writeAll(data: Buffer, eof: boolean): Promise<void> {
    known ??= Number((await o.write(new Uint8Array(), false)).offset);
    for (let rest = data; ; ) {
      const { offset, closed } = await o.write(rest, eof);
      const taken = Number(offset) - known;
      known = Number(offset);
      // A full pipe is answered with what it took so far.
      if (closed || taken >= rest.length) return;
      rest = rest.subarray(Math.max(0, taken));
    }
  }

  return {
    add(data, eof) {
      waiting += data.length;
      o.onWaiting(waiting);
      const written = last
        .catch(() => undefined)
        .then(() => writeAll(data, eof))
        .finally(() => {
          waiting -= data.length;
          o.onWaiting(waiting);
        });
      last = written;
      return written;
    },
  };
}

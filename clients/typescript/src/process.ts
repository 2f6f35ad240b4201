import { fromBase64, toBytes } from "./bytes.ts";
import { TimedOut } from "./errors.ts";
import { followEvents, type ServerEvent } from "./event-stream.ts";
import { type CallOptions, fillPath, type Http } from "./http.ts";
import { toCamelCase } from "./names.ts";
import type { ProcessRecord } from "./records.ts";
import { abortable } from "./time.ts";

/** `pty`: of a terminal. */
export type OutputStream = "stdout" | "stderr" | "pty";
export interface OutputChunk {
  stream: OutputStream;
  data: string;
}
export interface OutputBytes {
  stream: OutputStream;
  data: Uint8Array;
  /** Bytes of output up to and with these. */
  offset: number;
}

/** What a command of `stream` tells: first that it has started, then what a process tells. */
export type CommandEvent = { type: "start"; process: ProcessRecord } | ProcessEvent;

/** What a process tells: output, how many bytes of output are gone, and at last how it ended. */
export type ProcessEvent =
  | ({ type: "output" } & OutputBytes)
  | { type: "gap"; bytes: number; offset: number }
  | { type: "exit"; process: ProcessRecord };

export interface OutputOptions extends CallOptions {
  /** Bytes of output to skip; 0 by default, so all that is kept comes. */
  after?: number | undefined;
}

const waitSeconds = 60;
/** How much longer than the wait itself an answer may take. */
const waitGraceMs = 15_000;
export const maxInputBytes = 256 * 1024;
/** A full pipe is answered after 30 s. */
const inputAttemptMs = 60_000;

/** A process of a sandbox. It runs on when the client leaves. */
export class Process {
  /** The id by which `commands.connect` finds it again. */
  readonly id: string;
  readonly #http: Http;
  readonly #params: ProcessParams;
  #record: ProcessRecord;
  #writing: Promise<unknown> = Promise.resolve();

  constructor(http: Http, sandboxId: string, record: ProcessRecord) {
    this.#http = http;
    this.id = record.id;
    this.#params = { sandbox_id: sandboxId, process_id: record.id };
    this.#record = record;
  }

  /** What was last known of it. */
  get record(): ProcessRecord {
    return this.#record;
  }

  async refresh(o: CallOptions = {}): Promise<ProcessRecord> {
    this.#record = await this.#http.call("GET", "/sandboxes/{sandbox_id}/processes/{process_id}", {
      params: this.#params,
      ...o,
    });
    return this.#record;
  }

  /** All output that is kept, as text, until the process ends. Each use follows it anew. */
  get output(): AsyncIterable<OutputChunk> {
    return this.follow();
  }

  /** Output as text, from an offset on, until the process ends. A character that was split between writes stays whole. */
  async *follow(o: OutputOptions = {}): AsyncGenerator<OutputChunk, void> {
    const decode = createTextDecoders();
    for await (const event of this.events(o)) {
      if (event.type === "output") {
        const data = decode(event);
        if (data !== "") yield { stream: event.stream, data };
      }
    }
    yield* decode.end();
  }

  /** What it tells, byte by byte and in order, also over connections that break off. Ends after `exit`. */
  async *events(o: OutputOptions = {}): AsyncGenerator<ProcessEvent, void> {
    const { after = 0, signal } = o;
    const events = followEvents({
      lastId: String(after),
      open: (lastId = "0", connection) => openOutput(this.#http, this.#params, lastId, connection),
      isLast: ({ event }) => event === "exit",
      signal,
    });
    for await (const event of events) {
      const told = readEvent(event);
      if (told?.type === "start" || told?.type === "exit") this.#record = told.process;
      if (told && told.type !== "start") yield told;
    }
  }

  /**
   * Writes to its standard input, which must have been opened (`stdinOpen`). Each byte arrives once, in order. Others may
   * write to it too, but not at the same moment.
   */
  write(data: string | Uint8Array, o: CallOptions = {}): Promise<void> {
    return this.#inOrder(async () => {
      // Others may have written, and how much is taken of a write that fails is not known.
      const { offset } = await postInput(this.#http, this.#params, new Uint8Array(), {}, o);
      await writeInput(this.#http, this.#params, toBytes(data), offset, o);
    });
  }

  /** Ends its standard input; in a terminal Ctrl-D is typed. */
  closeStdin(o: CallOptions = {}): Promise<void> {
    return this.#inOrder(
      async () => void (await postInput(this.#http, this.#params, new Uint8Array(), { eof: true }, o)),
    );
  }

  #inOrder(write: () => Promise<void>): Promise<void> {
    const written = this.#writing.then(write);
    this.#writing = written.catch(() => {});
    return written;
  }

  /** Sends a signal of Linux by its name. */
  async signal(name: string, o: CallOptions = {}): Promise<void> {
    await this.#http.call("POST", "/sandboxes/{sandbox_id}/processes/{process_id}/signal", {
      params: this.#params,
      json: { signal: name },
      ...o,
    });
  }

  /** Ends it with all its descendants: SIGTERM, and SIGKILL 5 s later. Nothing happens when it has ended. */
  async kill(o: CallOptions = {}): Promise<void> {
    await this.#http.call("DELETE", "/sandboxes/{sandbox_id}/processes/{process_id}", { params: this.#params, ...o });
  }

  /** Waits until it has ended. */
  wait(o: CallOptions = {}): Promise<ProcessRecord> {
    const { signal, timeoutMs = Number.POSITIVE_INFINITY } = o;
    const onTimeout = () => new TimedOut("The process did not end in time.");
    return abortable({ signal, timeoutMs, onTimeout }, async (either) => {
      do {
        this.#record = await this.#http.call("POST", "/sandboxes/{sandbox_id}/processes/{process_id}/wait", {
          params: this.#params,
          json: { timeoutSeconds: waitSeconds },
          repeatable: true,
          attemptMs: waitSeconds * 1000 + waitGraceMs,
          signal: either,
        });
      } while (this.#record.state === "running");
      return this.#record;
    });
  }

  /** Changes the size of its terminal. */
  async resize(size: { cols: number; rows: number }, o: CallOptions = {}): Promise<void> {
    await this.#http.call("PUT", "/sandboxes/{sandbox_id}/processes/{process_id}/pty", {
      params: this.#params,
      json: size,
      ...o,
    });
  }

  /** A ticket by which a WebSocket attaches to it, once. */
  async createTicket(o: CallOptions = {}): Promise<string> {
    const { ticket } = await this.#http.call("POST", "/sandboxes/{sandbox_id}/processes/{process_id}/tickets", {
      params: this.#params,
      repeatable: true,
      ...o,
    });
    return ticket;
  }
}

type ProcessParams = { sandbox_id: string; process_id: string };

/** Writes to a process's standard input from an offset on, and gives the offset after it. */
export async function writeInput(
  http: Http,
  params: ProcessParams,
  bytes: Uint8Array,
  offset: number,
  o: CallOptions,
): Promise<number> {
  let from = offset;
  for (let rest = bytes; rest.length > 0; ) {
    const { offset } = await postInput(http, params, rest.subarray(0, maxInputBytes), { offset: from }, o);
    rest = rest.subarray(offset - from);
    from = offset;
  }
  return from;
}

/** Bytes at an offset that was reached before are not written again, so it may be repeated. */
function postInput(
  http: Http,
  params: ProcessParams,
  bytes: Uint8Array,
  query: { offset?: number; eof?: boolean },
  o: CallOptions,
) {
  return http.call("POST", "/sandboxes/{sandbox_id}/processes/{process_id}/stdin", {
    params,
    query,
    body: () => bytes,
    repeatable: true,
    attemptMs: inputAttemptMs,
    ...o,
  });
}

/** Opens the stream of a process's output after so many bytes. */
export function openOutput(http: Http, params: ProcessParams, after: string, signal: AbortSignal): Promise<Response> {
  return http.send({
    method: "GET",
    path: fillPath("/sandboxes/{sandbox_id}/processes/{process_id}/output", params),
    query: { encoding: "base64", after },
    headers: { accept: "text/event-stream" },
    signal,
  });
}

/** An event of a process's stream; undefined for one that tells nothing of the process. */
export function readEvent({ id, event, data }: ServerEvent): CommandEvent | undefined {
  const offset = Number(id);
  if (event === "output") {
    const { stream, data: text }: { stream: OutputStream; data: string } = JSON.parse(data);
    return { type: "output", stream, data: fromBase64(text), offset };
  }
  if (event === "gap") return { type: "gap", bytes: JSON.parse(data).bytes, offset };
  if (event === "start" || event === "exit") return { type: event, process: toCamelCase(JSON.parse(data)) };
  return undefined;
}

/** Decodes each stream by itself. `end` gives what bytes at the end were no whole character. */
export function createTextDecoders() {
  const decoders = new Map<OutputStream, InstanceType<typeof TextDecoder>>();
  const decode = ({ stream, data }: Pick<OutputBytes, "stream" | "data">): string => {
    const decoder = decoders.get(stream) ?? new TextDecoder("utf-8", { ignoreBOM: true });
    decoders.set(stream, decoder);
    return decoder.decode(data, { stream: true });
  };
  const end = (): OutputChunk[] =>
    [...decoders].map(([stream, decoder]) => ({ stream, data: decoder.decode() })).filter(({ data }) => data !== "");
  return Object.assign(decode, { end });
}

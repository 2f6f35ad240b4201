import { type Content, chunksOf, streamOf, toBase64, toBytes } from "./bytes.ts";
import { CommandFailed, CommandTimedOut, ProcessLost } from "./errors.ts";
import { followEvents } from "./event-stream.ts";
import {
  type CallOptions,
  type CreateOptions,
  fillPath,
  type Http,
  makeOrUndo,
  mayBeMade,
  newIdempotencyKey,
  type QueryOf,
  undoMs,
} from "./http.ts";
import {
  type CommandEvent,
  createTextDecoders,
  maxInputBytes,
  type OutputStream,
  openOutput,
  Process,
  readEvent,
  writeInput,
} from "./process.ts";
import type { ProcessRecord } from "./records.ts";

/** A program and its arguments, or a text for `/bin/sh -c`. */
export type Command = string | readonly string[];

interface CommandOptions {
  /** The image's folder by default, to which it is relative. */
  cwd?: string | undefined;
  /** Added to the sandbox's environment. */
  env?: Record<string, string> | undefined;
  /** A name, `uid` or `uid:gid`; the image's user by default. */
  user?: string | undefined;
  /** To find it by. */
  tag?: string | undefined;
}

export interface StartOptions extends CommandOptions, CreateOptions {
  /** What it reads first, 384 KiB at most. */
  stdin?: string | Uint8Array | undefined;
  /** Whether `write` may be used. */
  stdinOpen?: boolean | undefined;
  /** Ends it after so many seconds; never by default. */
  timeoutSeconds?: number | undefined;
  /** Gives it a terminal. */
  pty?: { cols: number; rows: number } | undefined;
}

export interface StreamOptions extends CommandOptions {
  /** What it reads; nothing by default. */
  stdin?: Content | undefined;
  /** How long the command may run, in milliseconds, rounded up to seconds; as long as the sandbox lives by default. */
  timeoutMs?: number | undefined;
  /** Ends the command, and throws the signal's reason. */
  signal?: AbortSignal | undefined;
}

export interface RunOptions extends StreamOptions {
  /** Throws CommandFailed when it ends with another exit code than 0. */
  check?: boolean | undefined;
  /** Gets output as it comes. */
  onStdout?: ((text: string) => void) | undefined;
  onStderr?: ((text: string) => void) | undefined;
}

/** How a command ended. */
export interface CommandResult {
  stdout: string;
  stderr: string;
  /** 128 plus the signal's number for one that a signal ended. */
  exitCode: number;
  /** The name of the signal that ended it. */
  signal: string | null;
  /** Bytes of output that were gone before they were read: more than 1 MiB came while there was no connection. */
  lostBytes: number;
  process: ProcessRecord;
}

/** The API takes 512 KiB of JSON, in which three bytes are four characters. */
const maxInlineInput = 384 * 1024;
const longestShown = 200;
/** No sandbox lives longer. */
const longestSeconds = 86_400;

/** The commands of a sandbox. */
export class Commands {
  readonly #http: Http;
  readonly #sandboxId: string;

  constructor(http: Http, sandboxId: string) {
    this.#http = http;
    this.#sandboxId = sandboxId;
  }

  /**
   * Runs a command and gives its output when it has ended. It runs once, and no output is lost, also when connections
   * break off. A non-zero exit is a result. Throws CommandTimedOut when its time is up.
   */
  async run(command: Command, o: RunOptions = {}): Promise<CommandResult> {
    const { stdin, signal, timeoutMs, check = false, onStdout, onStderr, ...rest } = o;
    const texts = { stdout: "", stderr: "" };
    let lostBytes = 0;
    let ended: ProcessRecord | undefined;
    const decode = createTextDecoders();
    const add = (stream: OutputStream, text: string) => {
      const name = stream === "stderr" ? "stderr" : "stdout";
      texts[name] += text;
      if (text !== "") (name === "stderr" ? onStderr : onStdout)?.(text);
    };
    for await (const event of this.stream(command, { ...rest, stdin, signal, timeoutMs })) {
      if (event.type === "output") add(event.stream, decode(event));
      if (event.type === "gap") lostBytes += event.bytes;
      if (event.type === "exit") ended = event.process;
    }
    for (const { stream, data } of decode.end()) add(stream, data);
    // A stream that ends without it throws.
    return toResult(ended as ProcessRecord, texts, { lostBytes, check, command });
  }

  /**
   * Runs a command as `run` does, and tells what it does as it happens, byte by byte. Leaving the loop, or an abort,
   * ends the command.
   */
  async *stream(command: Command, o: StreamOptions = {}): AsyncGenerator<CommandEvent, void> {
    const { stdin, signal, timeoutMs, ...rest } = o;
    const timeoutSeconds = timeoutMs === undefined ? undefined : Math.max(1, Math.ceil(timeoutMs / 1000));
    const inline = typeof stdin === "string" || stdin instanceof Uint8Array ? toBytes(stdin) : undefined;
    if (stdin !== undefined && (inline === undefined || inline.length > maxInlineInput)) {
      const process = await makeOrUndo(
        (call) => this.start(command, { ...rest, ...call, timeoutSeconds, stdinOpen: true }),
        ({ id }) => this.#kill(id),
        { signal },
      );
      yield* this.#feedAndFollow(process, stdin, signal);
      return;
    }
    const idempotencyKey = newIdempotencyKey();
    let process: ProcessRecord | undefined;
    const exec = (connection: AbortSignal) =>
      this.#http.send({
        method: "POST",
        path: fillPath("/sandboxes/{sandbox_id}/exec", { sandbox_id: this.#sandboxId }),
        json: {
          ...toFields(command, { ...rest, stdin: inline }),
          encoding: "base64",
          onDisconnect: "continue",
          timeoutSeconds: timeoutSeconds ?? longestSeconds,
        },
        headers: { accept: "text/event-stream" },
        idempotencyKey,
        signal: connection,
      });
    const findStarted = async () => {
      const open = (_: unknown, connection: AbortSignal) => exec(connection);
      for await (const event of followEvents({ open, isLast: () => true, signal: AbortSignal.timeout(undoMs) })) {
        const told = readEvent(event);
        if (told?.type === "start") return told.process;
      }
      return undefined;
    };
    signal?.throwIfAborted();
    const events = followEvents({
      // Its answer begins before the command does, so that none of its output is missed.
      open: (lastId = "0", connection) =>
        process === undefined
          ? exec(connection)
          : openOutput(this.#http, { sandbox_id: this.#sandboxId, process_id: process.id }, lastId, connection),
      isLast: ({ event }) => event === "exit",
      signal,
    });
    try {
      for await (const event of events) {
        const told = readEvent(event);
        if (told?.type === "start" && process !== undefined) continue;
        if (told?.type === "start" || told?.type === "exit") process = told.process;
        if (told) yield told;
      }
    } catch (error) {
      if (process === undefined && mayBeMade(error, signal)) process = await findStarted().catch(() => undefined);
      throw error;
    } finally {
      // Whoever has left has no handle to end it by.
      if (process?.state === "running") await this.#kill(process.id);
    }
  }

  async *#feedAndFollow(
    process: Process,
    stdin: Content,
    signal: AbortSignal | undefined,
  ): AsyncGenerator<CommandEvent, void> {
    const stop = new AbortController();
    let inputError: unknown;
    yield { type: "start", process: process.record };
    const params = { sandbox_id: this.#sandboxId, process_id: process.id };
    // Nobody else writes to it, so where it is need not be asked.
    let offset = 0;
    const write = async (bytes: Uint8Array) => {
      offset = await writeInput(this.#http, params, bytes, offset, { signal: stop.signal });
    };
    const writing = feed(process, stdin, write, stop.signal).catch((error: unknown) => {
      inputError = error;
      return process.kill().catch(() => {});
    });
    try {
      yield* process.events({ signal });
    } finally {
      stop.abort();
      if (process.record.state === "running") await this.#kill(process.id);
      await writing;
    }
    if (inputError !== undefined) throw inputError;
  }

  async #kill(id: string): Promise<void> {
    const params = { sandbox_id: this.#sandboxId, process_id: id };
    const path = "/sandboxes/{sandbox_id}/processes/{process_id}";
    // It is what failed or was aborted that is told.
    await this.#http.call("DELETE", path, { params, timeoutMs: undoMs }).catch(() => {});
  }

  /** Starts a command, which runs on by itself. */
  async start(command: Command, o: StartOptions = {}): Promise<Process> {
    const { idempotencyKey = newIdempotencyKey(), signal, timeoutMs, ...rest } = o;
    const record = await this.#http.call("POST", "/sandboxes/{sandbox_id}/processes", {
      params: { sandbox_id: this.#sandboxId },
      json: toFields(command, rest),
      idempotencyKey,
      signal,
      timeoutMs,
    });
    return new Process(this.#http, this.#sandboxId, record);
  }

  /** Those that run and the newest that have ended. */
  async list(o: QueryOf<"GET", "/sandboxes/{sandbox_id}/processes"> & CallOptions = {}): Promise<ProcessRecord[]> {
    const { signal, timeoutMs, ...query } = o;
    const { processes } = await this.#http.call("GET", "/sandboxes/{sandbox_id}/processes", {
      params: { sandbox_id: this.#sandboxId },
      query,
      signal,
      timeoutMs,
    });
    return processes;
  }

  /** Finds a process again by its id. */
  async connect(id: string, o: CallOptions = {}): Promise<Process> {
    const record = await this.#http.call("GET", "/sandboxes/{sandbox_id}/processes/{process_id}", {
      params: { sandbox_id: this.#sandboxId, process_id: id },
      ...o,
    });
    return new Process(this.#http, this.#sandboxId, record);
  }
}

/** The fields of a command as the API has them. */
function toFields<T extends { stdin?: string | Uint8Array | undefined }>(command: Command, { stdin, ...rest }: T) {
  return {
    command: typeof command === "string" ? command : [...command],
    ...withoutUndefined(rest),
    ...(stdin !== undefined && { stdin: toBase64(toBytes(stdin)), encoding: "base64" as const }),
  };
}

function toResult(
  process: ProcessRecord,
  texts: { stdout: string; stderr: string },
  o: { lostBytes: number; check: boolean; command: Command },
): CommandResult {
  const { exitCode, signal, timedOut, state } = process;
  const shown = (typeof o.command === "string" ? o.command : o.command.join(" ")).slice(0, longestShown);
  if (timedOut)
    throw new CommandTimedOut(`The command was ended when its time was up: ${shown}`, { ...texts, exitCode });
  if (state === "lost" || exitCode === null) throw new ProcessLost(texts);
  if (o.check && exitCode !== 0) {
    throw new CommandFailed(`The command ended with exit code ${exitCode}: ${shown}`, { ...texts, exitCode });
  }
  return { ...texts, exitCode, signal, lostBytes: o.lostBytes, process };
}

/** Writes all of it, and closes the input. What the process no longer reads is of no interest. */
async function feed(
  process: Process,
  content: Content,
  write: (bytes: Uint8Array) => Promise<void>,
  signal: AbortSignal,
): Promise<void> {
  const chunks = toChunks(content);
  // What waits for input that never comes is left alone.
  const stopped = new Promise<"stopped">((resolve) => signal.addEventListener("abort", () => resolve("stopped")));
  let writing: Promise<"written"> | undefined;
  try {
    let next = chunks.next();
    for (let isOver = false; !isOver; ) {
      const parts: Uint8Array[] = [];
      let size = 0;
      // A write is a request, so each takes what has come during the one before.
      while (!isOver && (size === 0 || (writing && size < maxInputBytes))) {
        const came = await Promise.race([next, stopped, ...(writing ? [writing] : [])]);
        if (came === "stopped") return;
        if (came === "written") writing = undefined;
        else if (came.done) isOver = true;
        else {
          const part = toBytes(came.value);
          parts.push(part);
          size += part.length;
          next = chunks.next();
          // It may fail during the write.
          next.catch(() => {});
        }
      }
      await writing;
      writing = write(join(parts)).then(() => "written");
      writing.catch(() => {});
    }
    await writing;
    await process.closeStdin({ signal });
  } catch (error) {
    if (signal.aborted) return;
    const { state } = await process.refresh();
    if (state === "running") throw error;
  }
}

function join(parts: readonly Uint8Array[]): Uint8Array {
  const [first] = parts;
  if (first && parts.length === 1) return first;
  const joined = new Uint8Array(parts.reduce((sum, { length }) => sum + length, 0));
  let at = 0;
  for (const part of parts) {
    joined.set(part, at);
    at += part.length;
  }
  return joined;
}

async function* toChunks(content: Content): AsyncGenerator<string | Uint8Array> {
  if (typeof content === "string" || content instanceof Uint8Array) yield content;
  else if (content instanceof ArrayBuffer) yield new Uint8Array(content);
  else if (content instanceof Blob) yield* chunksOf(content.stream());
  else if (content instanceof ReadableStream) yield* chunksOf(content);
  else yield* chunksOf(streamOf(content));
}

/** Fields that are undefined are not sent, which the types of the API say. */
export function withoutUndefined<T extends object>(fields: T): { [K in keyof T]: Exclude<T[K], undefined> } {
  const given = Object.entries(fields).filter(([, value]) => value !== undefined);
  return Object.fromEntries(given) as { [K in keyof T]: Exclude<T[K], undefined> };
}

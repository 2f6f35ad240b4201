import { type Content, chunksOf, streamOf, toBase64, toBytes } from "./bytes.ts";
import { CommandFailed, CommandTimedOut, ProcessLost } from "./errors.ts";
import { type CallOptions, type CreateOptions, type Http, newIdempotencyKey, type QueryOf } from "./http.ts";
import { createTextDecoders, type OutputBytes, Process } from "./process.ts";
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

export interface RunOptions extends CommandOptions {
  /** What it reads; nothing by default. */
  stdin?: Content | undefined;
  /** How long the command may run, in milliseconds, rounded up to seconds; without end by default. */
  timeoutMs?: number | undefined;
  /** Throws CommandFailed when it ends with another exit code than 0. */
  check?: boolean | undefined;
  /** Gets output as it comes. */
  onStdout?: ((text: string) => void) | undefined;
  onStderr?: ((text: string) => void) | undefined;
  /** Ends the command, and throws the signal's reason. */
  signal?: AbortSignal | undefined;
}

/** How a command ended. */
export interface CommandResult {
  stdout: string;
  stderr: string;
  /** 128 plus the signal's number for one that a signal ended. */
  exitCode: number;
  /** The name of the signal that ended it. */
  signal: string | null;
  /** Bytes of output that were gone before they were read; 0 but for more than 1 MiB while no connection was there. */
  lostBytes: number;
  process: ProcessRecord;
}

/** The API takes 512 KiB of JSON, in which three bytes are four characters. */
const maxInlineInput = 384 * 1024;
const longestTag = 200;

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
    const { timeoutMs, stdin, signal, check = false, onStdout, onStderr, ...rest } = o;
    const inline = typeof stdin === "string" || stdin instanceof Uint8Array ? toBytes(stdin) : undefined;
    const isInline = stdin === undefined || (inline !== undefined && inline.length <= maxInlineInput);
    const process = await this.start(command, {
      ...rest,
      signal,
      ...(timeoutMs !== undefined && { timeoutSeconds: Math.max(1, Math.ceil(timeoutMs / 1000)) }),
      ...(isInline ? { stdin: inline } : { stdinOpen: true }),
    });
    const failing = new AbortController();
    let inputError: unknown;
    const writing = isInline
      ? undefined
      : feed(process, stdin, failing.signal).catch((error: unknown) => {
          inputError = error;
          return process.kill().catch(() => {});
        });
    const texts = { stdout: "", stderr: "" };
    let lostBytes = 0;
    const decode = createTextDecoders();
    const add = (stream: OutputBytes["stream"], text: string) => {
      if (text === "") return;
      const name = stream === "stderr" ? "stderr" : "stdout";
      texts[name] += text;
      (name === "stderr" ? onStderr : onStdout)?.(text);
    };
    try {
      for await (const event of process.events({ signal })) {
        if (event.type === "output") add(event.stream, decode(event));
        if (event.type === "gap") lostBytes += event.bytes;
      }
    } catch (error) {
      // Whoever has no handle can't end it later.
      await process.kill({ timeoutMs: 10_000 }).catch(() => {});
      throw error;
    } finally {
      failing.abort();
      await writing;
    }
    if (inputError !== undefined) throw inputError;
    for (const { stream, data } of decode.end()) add(stream, data);
    return toResult(process.record, texts, { lostBytes, check, command });
  }

  /** Starts a command, which runs on by itself. */
  async start(command: Command, o: StartOptions = {}): Promise<Process> {
    const { stdin, idempotencyKey = newIdempotencyKey(), signal, timeoutMs, ...rest } = o;
    const bytes = stdin === undefined ? undefined : toBytes(stdin);
    const record = await this.#http.call("POST", "/sandboxes/{sandbox_id}/processes", {
      params: { sandbox_id: this.#sandboxId },
      json: {
        command: typeof command === "string" ? command : [...command],
        ...withoutUndefined(rest),
        ...(bytes && { stdin: toBase64(bytes), encoding: "base64" as const }),
      },
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

function toResult(
  process: ProcessRecord,
  texts: { stdout: string; stderr: string },
  o: { lostBytes: number; check: boolean; command: Command },
): CommandResult {
  const { exitCode, signal, timedOut, state } = process;
  const shown = (typeof o.command === "string" ? o.command : o.command.join(" ")).slice(0, longestTag);
  if (timedOut)
    throw new CommandTimedOut(`The command was ended when its time was up: ${shown}`, { ...texts, exitCode });
  if (state === "lost" || exitCode === null) throw new ProcessLost(texts);
  if (o.check && exitCode !== 0) {
    throw new CommandFailed(`The command ended with exit code ${exitCode}: ${shown}`, { ...texts, exitCode });
  }
  return { ...texts, exitCode, signal, lostBytes: o.lostBytes, process };
}

/** Writes all of it, and closes the input. What the process no longer reads is of no interest. */
async function feed(process: Process, content: Content, signal: AbortSignal): Promise<void> {
  try {
    for await (const chunk of toChunks(content)) await process.write(chunk, { signal });
    await process.closeStdin({ signal });
  } catch (error) {
    if (signal.aborted) return;
    const { state } = await process.refresh();
    if (state === "running") throw error;
  }
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

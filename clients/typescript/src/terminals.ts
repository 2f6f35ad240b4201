import { toBytes } from "./bytes.ts";
import { type Command, Commands, type StartOptions } from "./commands.ts";
import { ConnectionFailed, SandgateError } from "./errors.ts";
import { type CallOptions, fillPath, type Http, queryOf, requireWebSocket } from "./http.ts";
import type { Process } from "./process.ts";
import type { ProcessRecord } from "./records.ts";
import { delay, steadyMs } from "./time.ts";

export interface TerminalOptions {
  /** 80 by default. */
  cols?: number | undefined;
  /** 24 by default. */
  rows?: number | undefined;
  /** Gets the bytes that the terminal shows. */
  onData?: ((data: Uint8Array) => void) | undefined;
  /** Told when the connection breaks off, and when it is there again. */
  onConnection?: ((isConnected: boolean) => void) | undefined;
}

export interface CreateTerminalOptions extends TerminalOptions, Omit<StartOptions, "pty" | "stdin" | "stdinOpen"> {
  /** A shell by default: bash, or sh where there is none. */
  command?: Command | undefined;
}

export interface ConnectTerminalOptions extends TerminalOptions, CallOptions {
  /** Bytes of output to skip; 0 by default, so all that is kept comes again. */
  after?: number | undefined;
}

const defaultShell = "command -v bash >/dev/null 2>&1 && exec bash; exec sh";
const protocol = "sandgate.process.v1";
const maxFailures = 6;
const firstDelayMs = 250;
const maxDelayMs = 5_000;
const openMs = 20_000;
const inputByte = Uint8Array.of(0);

/** The terminals of a sandbox. */
export class Terminals {
  readonly #http: Http;
  readonly #sandboxId: string;
  readonly #commands: Commands;

  constructor(http: Http, sandboxId: string) {
    this.#http = http;
    this.#sandboxId = sandboxId;
    this.#commands = new Commands(http, sandboxId);
  }

  /** Starts a shell, or another command, in a terminal of its own. */
  async create(o: CreateTerminalOptions = {}): Promise<Terminal> {
    const { command = defaultShell, cols = 80, rows = 24, onData, onConnection, ...start } = o;
    requireWebSocket();
    const process = await this.#commands.start(command, { ...start, pty: { cols, rows } });
    return new Terminal(this.#http, this.#sandboxId, process, { onData, onConnection });
  }

  /** Attaches to a terminal that runs. Several may be attached to one. */
  async connect(id: string, o: ConnectTerminalOptions = {}): Promise<Terminal> {
    const { after, onData, onConnection, cols, rows, ...call } = o;
    requireWebSocket();
    const process = await this.#commands.connect(id, call);
    const terminal = new Terminal(this.#http, this.#sandboxId, process, { after, onData, onConnection });
    if (cols !== undefined && rows !== undefined) await terminal.resize({ cols, rows });
    return terminal;
  }
}

/** A terminal, attached by a WebSocket that is opened again where it broke off. It runs on when the client leaves. */
export class Terminal {
  readonly id: string;
  readonly #http: Http;
  readonly #sandboxId: string;
  readonly #process: Process;
  readonly #options: TerminalOptions;
  readonly #stop = new AbortController();
  readonly #attached: Promise<void>;
  #offset: number;
  #socket: WebSocket | undefined;
  #waiting: (string | Uint8Array)[] = [];

  constructor(http: Http, sandboxId: string, process: Process, o: TerminalOptions & { after?: number | undefined }) {
    this.#http = http;
    this.#sandboxId = sandboxId;
    this.#process = process;
    this.#options = o;
    this.#offset = o.after ?? 0;
    this.id = process.id;
    this.#attached = this.#stayAttached();
    // Who waits is told.
    this.#attached.catch(() => {});
  }

  /** The process in it. */
  get process(): Process {
    return this.#process;
  }

  /** Bytes of output that have come. */
  get offset(): number {
    return this.#offset;
  }

  /** Types. What is typed while there is no connection is sent when there is one again. */
  write(data: string | Uint8Array): void {
    const bytes = toBytes(data);
    const frame = new Uint8Array(bytes.length + 1);
    frame.set(inputByte);
    frame.set(bytes, 1);
    this.#send(frame);
  }

  /** Changes its size. */
  async resize(size: { cols: number; rows: number }): Promise<void> {
    this.#send(JSON.stringify({ type: "resize", ...size }));
  }

  /** Ends what runs in it. */
  kill(o: CallOptions = {}): Promise<void> {
    return this.#process.kill(o);
  }

  /** Waits until what runs in it has ended, and all output has come. Throws when the connection is lost for good. */
  async wait(): Promise<ProcessRecord> {
    await this.#attached;
    return this.#process.refresh();
  }

  /** Detaches; the terminal runs on. */
  close(): void {
    this.#stop.abort();
    this.#socket?.close();
  }

  #send(frame: string | Uint8Array): void {
    if (this.#socket?.readyState === WebSocket.OPEN) this.#socket.send(frame as string);
    else if (!this.#stop.signal.aborted) this.#waiting.push(frame);
  }

  async #stayAttached(): Promise<void> {
    const { signal } = this.#stop;
    let failures = 0;
    while (!signal.aborted) {
      const before = this.#offset;
      const openedMs = performance.now();
      const isOver = await this.#attach();
      if (isOver || signal.aborted) return;
      const isNew = this.#offset > before || performance.now() - openedMs > steadyMs;
      failures = isNew ? 0 : failures + 1;
      if (failures > maxFailures) throw new ConnectionFailed("The terminal's connection broke off again and again.");
      this.#options.onConnection?.(false);
      await delay(Math.min(maxDelayMs, firstDelayMs * 2 ** failures), signal).catch(() => {});
    }
  }

  /** Returns whether the process has ended. */
  async #attach(): Promise<boolean> {
    const { signal } = this.#stop;
    let ticket: string;
    try {
      ticket = await this.#process.createTicket({ signal });
    } catch (error) {
      if (signal.aborted) return false;
      // Nothing that a new try would change.
      if (error instanceof SandgateError && error.retryable) return false;
      throw error;
    }
    const { url } = await this.#http.settings();
    const path = fillPath("/sandboxes/{sandbox_id}/processes/{process_id}/attach", {
      sandbox_id: this.#sandboxId,
      process_id: this.id,
    });
    const address = `${url.replace(/^http/, "ws")}${path}${queryOf({ after: this.#offset, ticket })}`;
    const socket = new WebSocket(address, protocol);
    socket.binaryType = "arraybuffer";
    this.#socket = socket;
    return new Promise((resolve) => {
      let hasExited = false;
      const timer = setTimeout(() => socket.close(), openMs);
      socket.addEventListener("open", () => {
        clearTimeout(timer);
        this.#options.onConnection?.(true);
        for (const frame of this.#waiting.splice(0)) socket.send(frame as string);
      });
      socket.addEventListener("message", ({ data }: { data: string | ArrayBuffer }) => {
        if (typeof data === "string") {
          const frame: { type: string; bytes?: number } = JSON.parse(data);
          if (frame.type === "gap") this.#offset += frame.bytes ?? 0;
          hasExited ||= frame.type === "exit";
          return;
        }
        const bytes = new Uint8Array(data, 1);
        this.#offset += bytes.length;
        this.#options.onData?.(bytes);
      });
      // An error is followed by a close.
      socket.addEventListener("error", () => {});
      socket.addEventListener("close", () => {
        clearTimeout(timer);
        resolve(hasExited);
      });
    });
  }
}

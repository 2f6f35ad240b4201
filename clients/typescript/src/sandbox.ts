import { Commands, withoutUndefined } from "./commands.ts";
import { ProvisioningFailed, SandboxNotReady, TimedOut } from "./errors.ts";
import { Files } from "./files.ts";
import {
  type CallOptions,
  type CreateOptions,
  Http,
  makeOrUndo,
  newIdempotencyKey,
  type QueryOf,
  undoMs,
} from "./http.ts";
import { List, Sequence } from "./list.ts";
import { type LogOptions, type MetricOptions, readLogs, readMetrics, type Source } from "./monitoring.ts";
import { Ports } from "./ports.ts";
import type { LogEntry, MetricPoint, SandboxRecord, SandboxState } from "./records.ts";
import type { ClientOptions } from "./settings.ts";
import { Terminals } from "./terminals.ts";
import { abortable, delay } from "./time.ts";

export interface ProvisionOptions extends CreateOptions {
  /** Made up by default. */
  name?: string | undefined;
  labels?: Record<string, string> | undefined;
  /** Environment variables besides the image's. */
  env?: Record<string, string> | undefined;
  /** The program and its arguments instead of the image's. */
  command?: readonly string[] | undefined;
  /** Seconds until it ends: the image's by default, and at most that. */
  ttlSeconds?: number | undefined;
  /** Seconds without use until it ends; never by default. */
  idleTimeoutSeconds?: number | undefined;
}

export interface CreateSandboxOptions extends ProvisionOptions {
  /** How long to wait until it is ready, in milliseconds; 5 minutes by default. */
  timeoutMs?: number | undefined;
  /** Told of each change of the record while it is provisioned, such as the progress of the pull. */
  onProgress?: ((record: SandboxRecord) => void) | undefined;
}

export interface ListSandboxesOptions extends CallOptions {
  /** A part of the list: one state or several. */
  state?: SandboxState | readonly SandboxState[] | undefined;
  /** What the name begins with. */
  name?: string | undefined;
  /** Labels that it must have. */
  labels?: Record<string, string> | undefined;
  /** How many there are on a page. */
  limit?: number | undefined;
}

const readyMs = 300_000;
const waitSeconds = 60;
const waitGraceMs = 15_000;
const progressMs = 500;

/** A sandbox. It is stopped at the end of the block with `await using`. */
export class Sandbox {
  readonly id: string;
  /** Runs commands. */
  readonly commands: Commands;
  readonly files: Files;
  /** Terminals. */
  readonly pty: Terminals;
  readonly ports: Ports;
  readonly #http: Http;
  #record: SandboxRecord;

  /** For `Sandbox.create`, `Sandbox.connect` and `Sandgate.sandboxes`. */
  constructor(http: Http, record: SandboxRecord) {
    // Only its own workspace has it.
    this.#http = http;
    this.#record = record;
    this.id = record.id;
    this.commands = new Commands(http, record.id);
    this.files = new Files(http, record.id);
    this.pty = new Terminals(http, record.id);
    this.ports = new Ports(http, record.id);
  }

  /** Makes a sandbox from an image, by its name or id, and waits until it is ready. */
  static create(image: string, o: CreateSandboxOptions & ClientOptions = {}): Promise<Sandbox> {
    return new Sandboxes(new Http(o)).create(image, withoutClientOptions(o));
  }

  /** Finds a sandbox by its id or name. */
  static connect(idOrName: string, o: CallOptions & ClientOptions = {}): Promise<Sandbox> {
    return new Sandboxes(new Http(o)).get(idOrName, withoutClientOptions(o));
  }

  /** The sandboxes of the workspace, newest first. */
  static list(o: ListSandboxesOptions & ClientOptions = {}): List<Sandbox> {
    return new Sandboxes(new Http(o)).list(withoutClientOptions(o));
  }

  /** What was last known of it. */
  get record(): SandboxRecord {
    return this.#record;
  }

  get name(): string {
    return this.#record.name;
  }

  get state(): SandboxState {
    return this.#record.state;
  }

  async refresh(o: CallOptions = {}): Promise<SandboxRecord> {
    this.#record = await this.#http.call("GET", "/sandboxes/{sandbox_id}", { params: { sandbox_id: this.id }, ...o });
    return this.#record;
  }

  /**
   * Waits until it is ready, 5 minutes unless `timeoutMs` says otherwise. Throws ProvisioningFailed when it has failed,
   * and Conflict when it was stopped.
   */
  async waitUntilReady(
    o: Pick<CreateSandboxOptions, "signal" | "timeoutMs" | "onProgress"> = {},
  ): Promise<SandboxRecord> {
    const { signal, timeoutMs = readyMs, onProgress } = o;
    const onTimeout = () => new TimedOut(`The sandbox ${this.name} was not ready in time.`);
    return abortable({ signal, timeoutMs, onTimeout }, async (either) => {
      const watching = new AbortController();
      if (onProgress) this.#reportProgress(onProgress, AbortSignal.any([either, watching.signal])).catch(() => {});
      try {
        this.#record = await this.#wait(either);
        onProgress?.(this.#record);
        return this.#record;
      } finally {
        watching.abort();
      }
    });
  }

  async #wait(signal: AbortSignal): Promise<SandboxRecord> {
    for (;;) {
      try {
        return await this.#http.call("POST", "/sandboxes/wait", {
          json: { sandboxId: this.id, timeoutSeconds: waitSeconds },
          repeatable: true,
          finalCodes: ["sandbox_not_ready", "provisioning_failed"],
          attemptMs: waitSeconds * 1000 + waitGraceMs,
          signal,
        });
      } catch (error) {
        signal.throwIfAborted();
        if (!(error instanceof SandboxNotReady)) throw error;
      }
    }
  }

  async #reportProgress(onProgress: (record: SandboxRecord) => void, signal: AbortSignal): Promise<void> {
    let last = "";
    for (;;) {
      const record = await this.refresh({ signal });
      const now = JSON.stringify([record.timeline, record.pull, record.state]);
      if (now !== last && !signal.aborted) onProgress(record);
      last = now;
      await delay(progressMs, signal);
    }
  }

  /** Lets it live for so many seconds from now; never shorter than before unless `shorten` allows that. */
  async extend(ttlSeconds: number, o: { shorten?: boolean | undefined } & CallOptions = {}): Promise<SandboxRecord> {
    const { shorten, ...call } = o;
    this.#record = await this.#http.call("POST", "/sandboxes/{sandbox_id}/extend", {
      params: { sandbox_id: this.id },
      json: withoutUndefined({ ttlSeconds, shorten }),
      repeatable: true,
      ...call,
    });
    return this.#record;
  }

  /** Stops it, in whatever state it is. */
  async stop(o: CallOptions = {}): Promise<void> {
    await this.#http.call("DELETE", "/sandboxes/{sandbox_id}", { params: { sandbox_id: this.id }, ...o });
  }

  [Symbol.asyncDispose](): Promise<void> {
    return this.stop();
  }

  /** Its log lines, oldest first. `await` gives an array; with `follow` use `for await`. */
  logs(o: LogOptions = {}): Sequence<LogEntry> {
    return new Sequence(() => readLogs(this.#source(), o));
  }

  /** Its samples of CPU and memory, oldest first. `await` gives an array; with `follow` use `for await`. */
  metrics(o: MetricOptions = {}): Sequence<MetricPoint> {
    return new Sequence(() => readMetrics(this.#source(), o));
  }

  #source(): Source {
    const state = async (signal: AbortSignal | undefined) => (await this.refresh({ signal })).state;
    return { http: this.#http, sandboxId: this.id, createdAt: this.#record.createdAt, state };
  }

  /**
   * Sends an HTTP request to a server on one of its ports, with the client's credential, and no preview needed. What
   * the server answers is returned as it is, errors and redirects too; a browser hides what a redirect holds. Throws
   * BadSettings for a path that leads out of the port, such as `/../x`.
   */
  async fetch(port: number, path: string, init: RequestInit = {}): Promise<Response> {
    return this.#http.fetchPort({ sandboxId: this.id, port, path }, init);
  }
}

/** The sandboxes of a workspace. */
export class Sandboxes {
  readonly #http: Http;

  constructor(http: Http) {
    this.#http = http;
  }

  /** Newest first. */
  list(o: ListSandboxesOptions = {}): List<Sandbox> {
    const { state, labels = {}, name, limit, ...call } = o;
    const label = Object.entries(labels).map(([key, value]) => `${key}:${value}`);
    const states = state === undefined ? undefined : [state].flat().join(",");
    return new List(async ({ cursor, signal = call.signal }) => {
      const { sandboxes, nextCursor } = await this.#http.call("GET", "/sandboxes", {
        query: withoutUndefined({ state: states, name, limit, cursor, label }) as QueryOf<"GET", "/sandboxes">,
        ...call,
        signal,
      });
      return { items: sandboxes.map((record) => new Sandbox(this.#http, record)), nextCursor };
    });
  }

  /** By its id or name. */
  async get(idOrName: string, o: CallOptions = {}): Promise<Sandbox> {
    const params = { sandbox_id: idOrName };
    return new Sandbox(this.#http, await this.#http.call("GET", "/sandboxes/{sandbox_id}", { params, ...o }));
  }

  /** Makes one without waiting until it is ready. */
  async provision(image: string, o: ProvisionOptions = {}): Promise<Sandbox> {
    const { idempotencyKey = newIdempotencyKey(), signal, timeoutMs, command, ...rest } = o;
    const record = await this.#http.call("POST", "/sandboxes/provision", {
      json: { image, ...withoutUndefined({ ...rest, command: command && [...command] }) },
      idempotencyKey,
      signal,
      timeoutMs,
    });
    return new Sandbox(this.#http, record);
  }

  /** Makes one and waits until it is ready. One that isn't ready in time, or is aborted, is stopped. */
  async create(image: string, o: CreateSandboxOptions = {}): Promise<Sandbox> {
    const { timeoutMs = readyMs, onProgress, ...rest } = o;
    const startedAt = Date.now();
    const discard = (sandbox: Sandbox) => sandbox.stop({ timeoutMs: undoMs }).catch(() => {});
    const sandbox = await makeOrUndo((call) => this.provision(image, { ...rest, ...call }), discard, {
      ...rest,
      timeoutMs,
    });
    try {
      const left = Math.max(0, timeoutMs - (Date.now() - startedAt));
      await sandbox.waitUntilReady({ signal: o.signal, timeoutMs: left, onProgress });
      return sandbox;
    } catch (error) {
      // Nobody has a handle to it; one that failed has ended by itself.
      if (!(error instanceof ProvisioningFailed)) await discard(sandbox);
      throw error;
    }
  }
}

function withoutClientOptions<T extends ClientOptions>(o: T): Omit<T, keyof ClientOptions> {
  const { url, token, workspace, requestTimeoutMs, maxRetries, fetch, ...rest } = o;
  return rest;
}

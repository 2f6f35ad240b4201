import type { paths } from "./api.ts";
import { watchFailure } from "./bytes.ts";
import { BadSettings, ConnectionFailed, readError, SandgateError, TimedOut, WorkspaceNotFound } from "./errors.ts";
import { snakeName, toCamelCase, toSnakeCase } from "./names.ts";
import { type ClientOptions, resolveSettings, type Settings } from "./settings.ts";
import { abortable, delay, randomId, untilAborted } from "./time.ts";

/** What every method takes. */
export interface CallOptions {
  /** Ends the call. It throws the signal's reason. */
  signal?: AbortSignal | undefined;
  /** How long the call may take, with all its retries. */
  timeoutMs?: number | undefined;
}

/** What a creation takes. */
export interface CreateOptions extends CallOptions {
  /** A creation with a key that was used before gives what was created then. A new one by default. */
  idempotencyKey?: string | undefined;
}

export type Method = "GET" | "PUT" | "POST" | "PATCH" | "DELETE";
type QueryValue = string | number | boolean | undefined | null;

/** A request as it goes over the wire. */
export interface Request extends CallOptions {
  method: Method;
  path: string;
  query?: object | undefined;
  /** JSON, with the client's names. */
  json?: unknown;
  /** The body of each try. */
  body?: (() => RequestBody) | undefined;
  /** The body can be read once, so it is sent once. */
  isOnce?: boolean;
  headers?: Record<string, string> | undefined;
  /** Whether a try with an unknown outcome may be repeated: all but POST by default, and what has a key. */
  repeatable?: boolean | undefined;
  idempotencyKey?: string | undefined;
  /** Needs no credential. */
  anonymous?: boolean | undefined;
  /** Instead of the workspace that the client is for; null: none is sent. */
  workspace?: string | null | undefined;
  /** How long one try may take to be answered. */
  attemptMs?: number | undefined;
  /** Codes of errors that are no reason to try again, though they are retryable. */
  finalCodes?: readonly string[];
}

export type RequestBody = string | Uint8Array | ArrayBuffer | Blob | ReadableStream<Uint8Array>;

const defaultAttemptMs = 30_000;
const defaultRetries = 3;
const firstDelayMs = 250;
const maxDelayMs = 10_000;
/** For a caller who is asked to come back later than this, the refusal is the answer. */
const maxRetryAfterMs = 60_000;

type Operations<M extends Method> = {
  [P in keyof paths]: paths[P] extends Record<Lowercase<M>, infer Operation> ? Operation : never;
};
/** The paths of the API that have a method. */
export type PathOf<M extends Method> = {
  [P in keyof paths]: [Operations<M>[P]] extends [never] ? never : P;
}[keyof paths];
type Json<T> = T extends { content: { "application/json": infer Body } } ? Body : never;
type Answers<Op> = Op extends { responses: infer R } ? { [S in keyof R]: Json<R[S]> }[keyof R] : never;
/** What a call answers with: undefined if it has no content. */
export type AnswerOf<M extends Method, P extends PathOf<M>> =
  // What has no content has no answer.
  [Answers<Operations<M>[P]>] extends [never] ? undefined : Answers<Operations<M>[P]>;
export type BodyOf<M extends Method, P extends PathOf<M>> = Operations<M>[P] extends { requestBody?: infer B }
  ? Json<NonNullable<B>>
  : never;
export type QueryOf<M extends Method, P extends PathOf<M>> = Operations<M>[P] extends {
  parameters: { query?: infer Q };
}
  ? NonNullable<Q>
  : never;
type ParamsOf<M extends Method, P extends PathOf<M>> = Operations<M>[P] extends { parameters: { path: infer V } }
  ? V
  : never;

/** What a call of the API carries, by its OpenAPI document. */
export type Call<M extends Method, P extends PathOf<M>> = Omit<Request, "method" | "path" | "query" | "json"> &
  ([ParamsOf<M, P>] extends [never] ? { params?: never } : { params: ParamsOf<M, P> }) &
  ([BodyOf<M, P>] extends [never] ? { json?: never } : { json?: BodyOf<M, P> }) &
  ([QueryOf<M, P>] extends [never] ? { query?: never } : { query?: Partial<QueryOf<M, P>> | undefined });

/** Sends requests with the credential and workspace, and retries those that are safe to retry. */
export class Http {
  readonly #options: ClientOptions;
  #settings: Promise<Settings> | undefined;
  #workspace: Promise<string> | undefined;

  constructor(options: ClientOptions) {
    this.#options = options;
  }

  settings(): Promise<Settings> {
    this.#settings ??= resolveSettings(this.#options);
    return this.#settings;
  }

  /** A client of the same settings for another workspace. */
  forWorkspace(workspace: string): Http {
    return new Http({ ...this.#options, workspace });
  }

  /** Calls the API and reads its JSON. */
  async call<M extends Method, P extends PathOf<M>>(method: M, path: P, call: Call<M, P>): Promise<AnswerOf<M, P>> {
    // What the types of each path add up to.
    const { params, ...rest } = call as Partial<Request> & { params?: Record<string, string> };
    return this.read({ ...rest, method, path: fillPath(path, params) }, async (response) => {
      const text = await response.text();
      return (text === "" ? undefined : toCamelCase(JSON.parse(text))) as AnswerOf<M, P>;
    });
  }

  /** Sends a request and gives its answer once it has begun. Throws what the answer tells of when it is an error. */
  send(request: Request): Promise<Response> {
    return this.read(request, async (response) => response);
  }

  /** The address of a WebSocket, and the headers that open it where there are no tickets; browsers can't send any. */
  async socketTo(path: string, o: CallOptions = {}): Promise<{ address: string; headers: Record<string, string> }> {
    const { url, token } = await this.settings();
    const bearer = await token({});
    const headers = {
      ...(bearer !== undefined && { authorization: `Bearer ${bearer}` }),
      "x-workspace-id": await this.workspaceId(o),
    };
    return { address: `${url.replace(/^http/, "ws")}${path}`, headers };
  }

  /**
   * Sends a request to a server in a sandbox, and gives what it answers. The credential goes to that server's part of
   * the API alone: a redirect is an answer, and BadSettings is thrown for a path that leads out.
   */
  async fetchPort(to: { sandboxId: string; port: number; path: string }, init: RequestInit): Promise<Response> {
    const { fetch = globalThis.fetch } = this.#options;
    const { url, token } = await this.settings();
    const start = fillPath("/sandboxes/{sandbox_id}/ports/{port}/http/", {
      sandbox_id: to.sandboxId,
      port: String(to.port),
    });
    const server = new URL(`${url}${start}`);
    const address = new URL(`${server}${to.path.replace(/^\//, "")}`);
    if (!address.pathname.startsWith(server.pathname)) {
      throw new BadSettings(`The path ${JSON.stringify(to.path)} leads out of the port.`);
    }
    const headers = new Headers(init.headers);
    const bearer = await token({});
    if (bearer !== undefined) headers.set("authorization", `Bearer ${bearer}`);
    headers.set("x-workspace-id", await this.workspaceId());
    return fetch(address, { ...init, headers, redirect: "manual" });
  }

  /** Sends a request and reads its answer; reading belongs to a try. */
  async read<T>(request: Request, read: (response: Response) => Promise<T>): Promise<T> {
    const { timeoutMs, signal } = request;
    const tries = (whole: AbortSignal | undefined) => this.#tryUntilDone(request, read, whole);
    if (timeoutMs === undefined) return tries(signal);
    return abortable({ signal, timeoutMs, onTimeout: () => timedOut(request) }, tries);
  }

  async #tryUntilDone<T>(
    request: Request,
    read: (response: Response) => Promise<T>,
    signal: AbortSignal | undefined,
  ): Promise<T> {
    const { maxRetries = defaultRetries } = this.#options;
    const endMs = performance.now() + (request.timeoutMs ?? Number.POSITIVE_INFINITY);
    const repeatable = request.repeatable ?? (request.method !== "POST" || request.idempotencyKey !== undefined);
    let refused: string | undefined;
    let isUnknown = false;
    for (let retries = 0; ; ) {
      signal?.throwIfAborted();
      const token = await this.#tokenFor(request, refused);
      try {
        return await this.#try(request, read, token, signal);
      } catch (error) {
        signal?.throwIfAborted();
        if (!(error instanceof SandgateError)) throw error;
        if (request.isOnce) throw error;
        if (error.code === "invalid_token" && token !== undefined && refused === undefined) {
          refused = token;
          if ((await this.#tokenFor(request, refused)) !== token) continue;
          throw error;
        }
        // An earlier try whose answer was lost has deleted it.
        if (isUnknown && request.method === "DELETE" && error.status === 404) return undefined as T;
        const isAnswer = error.status > 0;
        if (retries >= maxRetries || !mayRetry(error, repeatable, request.finalCodes)) throw error;
        if (performance.now() + (error.retryAfterMs ?? 0) >= endMs) throw error;
        if (!isAnswer || error.status >= 500) isUnknown = true;
        await delay(retryDelayMs(retries, error), signal);
        retries += 1;
      }
    }
  }

  async #tokenFor({ anonymous, headers }: Request, refused: string | undefined): Promise<string | undefined> {
    if (anonymous || headers?.authorization !== undefined) return undefined;
    const { token } = await this.settings();
    return token(refused === undefined ? {} : { refused });
  }

  async #try<T>(
    request: Request,
    read: (response: Response) => Promise<T>,
    token: string | undefined,
    signal: AbortSignal | undefined,
  ): Promise<T> {
    const { attemptMs = this.#options.requestTimeoutMs ?? defaultAttemptMs } = request;
    const { url } = await this.settings();
    const headers = new Headers(request.headers);
    if (token !== undefined) headers.set("authorization", `Bearer ${token}`);
    if (request.idempotencyKey !== undefined) headers.set("idempotency-key", request.idempotencyKey);
    if (request.json !== undefined) headers.set("content-type", "application/json");
    else if (request.body !== undefined && !headers.has("content-type")) {
      headers.set("content-type", "application/octet-stream");
    }
    const workspace = await this.#workspaceOf(request, signal);
    if (workspace !== undefined) headers.set("x-workspace-id", workspace);
    const given = request.json === undefined ? request.body?.() : JSON.stringify(toSnakeCase(request.json));
    const isStream = given instanceof ReadableStream;
    let unread: { error: unknown } | undefined;
    const noteUnread = (error: unknown) => {
      unread = { error };
    };
    const body = isStream ? watchFailure(given, noteUnread) : given;
    return abortable({ signal, timeoutMs: attemptMs, onTimeout: () => timedOut(request) }, async (attempt, done) => {
      const { fetch = globalThis.fetch } = this.#options;
      let response: Response;
      try {
        response = await fetch(`${url}${request.path}${queryOf(request.query)}`, {
          method: request.method,
          headers,
          signal: attempt,
          redirect: "error",
          ...(body !== undefined && { body: body as NonNullable<RequestInit["body"]> }),
          // Streams are sent while the answer isn't there yet.
          ...(isStream && { duplex: "half" }),
        });
      } catch (error) {
        attempt.throwIfAborted();
        // It is the caller's own that failed, not the connection.
        if (unread) throw unread.error;
        throw unreachable(url, error);
      }
      if (!response.ok) throw await readError(response);
      // A stream, or a file, may take as long as it likes.
      if (!response.headers.get("content-type")?.startsWith("application/json")) done();
      try {
        return await read(response);
      } catch (error) {
        attempt.throwIfAborted();
        if (error instanceof SandgateError) throw error;
        throw new ConnectionFailed("The connection broke off before the answer was read.", { cause: error });
      }
    });
  }

  /** The id of the workspace of a request. */
  async #workspaceOf(request: Request, signal: AbortSignal | undefined): Promise<string | undefined> {
    if (request.workspace === null || request.anonymous || isPersonal(request.path)) return undefined;
    return request.workspace ?? this.workspaceId({ signal });
  }

  /** The id of the workspace that this client uses. It is looked up once. */
  workspaceId({ signal }: CallOptions = {}): Promise<string> {
    this.#workspace ??= this.#findWorkspace().catch((error: unknown) => {
      this.#workspace = undefined;
      throw error;
    });
    // Others may wait for it too, so an abort leaves it alone.
    return untilAborted(this.#workspace, signal);
  }

  async #findWorkspace(): Promise<string> {
    const { workspace } = await this.settings();
    if (workspace === undefined) {
      const { defaultWorkspaceId } = await this.call("GET", "/workspaces", { query: { limit: 1 } });
      return defaultWorkspaceId ?? noWorkspace("You have no workspace of your own.");
    }
    if (isUuid(workspace)) return workspace;
    const found: string[] = [];
    for (let cursor: string | null | undefined; cursor !== null; ) {
      const query = cursor === undefined ? { limit: 500 } : { limit: 500, cursor };
      const page = await this.call("GET", "/workspaces", { query });
      found.push(...page.workspaces.filter(({ name }) => name === workspace).map(({ id }) => id));
      cursor = page.nextCursor;
    }
    // Names are not unique, and others may add their workspaces to one's list.
    if (found.length > 1) noWorkspace(`You have several workspaces ${JSON.stringify(workspace)}.`);
    return found[0] ?? noWorkspace(`You have no workspace ${JSON.stringify(workspace)}.`);
  }
}

function noWorkspace(message: string): never {
  const hint = "Name one by its id: `sandgate workspaces` lists them.";
  throw new WorkspaceNotFound({ code: "workspace_not_found", message, hint, status: 404 });
}

/** Throws BadSettings where the runtime has no WebSocket, before anything is begun. */
export function requireWebSocket(): void {
  if (typeof WebSocket === "undefined") {
    throw new BadSettings(
      "Terminals and connections to ports need a WebSocket.",
      "Node.js has one from version 22 on.",
    );
  }
}

/** These belong to no workspace, or have it in their path. */
function isPersonal(path: string): boolean {
  return ["/workspaces", "/api-tokens", "/auth", "/admin", "/healthz", "/readyz"].some((start) =>
    path.startsWith(start),
  );
}

const uuid = /^[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}$/i;

function isUuid(text: string): boolean {
  return uuid.test(text);
}

/**
 * Fills a path of the API: `/sandboxes/{sandbox_id}`. Throws BadSettings for nothing, `.` and `..`, with which it would be
 * another path, such as the one that deletes all.
 */
export function fillPath(path: string, params: Record<string, string> = {}): string {
  return path.replace(/\{(\w+)\}/g, (_, name: string) => {
    const value = params[name] ?? "";
    if (["", ".", ".."].includes(value)) throw new BadSettings(`${name} must not be empty, "." or "..".`);
    return encodeURIComponent(value);
  });
}

/** A key for a creation. */
export function newIdempotencyKey(): string {
  return randomId();
}

/** How long it is tried to end what was left behind. */
export const undoMs = 10_000;

/** Whether a creation that failed may have been carried out, so that its key may find what nobody has a handle to. */
export function mayBeMade(error: unknown, signal: AbortSignal | undefined): boolean {
  return signal?.aborted || error instanceof TimedOut;
}

/** Makes what only the caller will have a handle to. Where the outcome of that isn't known, what its key finds is undone. */
export async function makeOrUndo<T>(
  make: (o: CreateOptions) => Promise<T>,
  undo: (made: T) => Promise<void>,
  { signal, timeoutMs, idempotencyKey = newIdempotencyKey() }: CreateOptions,
): Promise<T> {
  signal?.throwIfAborted();
  try {
    return await make({ idempotencyKey, signal, timeoutMs });
  } catch (error) {
    // It is what failed or was aborted that is told.
    if (mayBeMade(error, signal))
      await make({ idempotencyKey, signal: undefined, timeoutMs: undoMs }).then(undo, () => {});
    throw error;
  }
}

export function queryOf(query: object | undefined): string {
  const given = new URLSearchParams();
  for (const [name, values] of Object.entries(query ?? {}) as [string, QueryValue | QueryValue[]][]) {
    for (const value of [values].flat()) {
      if (value !== undefined && value !== null) given.append(snakeName(name), String(value));
    }
  }
  return given.size === 0 ? "" : `?${given}`;
}

function mayRetry(error: SandgateError, repeatable: boolean, finalCodes: readonly string[] = []): boolean {
  if (!error.retryable || finalCodes.includes(error.code)) return false;
  if (error.retryAfterMs !== undefined && error.retryAfterMs > maxRetryAfterMs) return false;
  // These are refused before anything is done.
  if (error.code === "rate_limited" || error.code === "sandbox_not_ready") return true;
  return repeatable;
}

/** Doubles each time, with jitter, and is never less than the server asked for. */
function retryDelayMs(retries: number, { retryAfterMs = 0 }: SandgateError): number {
  const longest = Math.min(maxDelayMs, firstDelayMs * 2 ** retries);
  return retryAfterMs + longest * (0.5 + Math.random() / 2);
}

function timedOut({ method, path }: Request): TimedOut {
  return new TimedOut(`${method} ${path} was not answered in time.`);
}

function unreachable(url: string, cause: unknown): ConnectionFailed {
  // What `fetch` throws says only that it failed.
  const reason = cause instanceof Error && cause.cause instanceof Error ? cause.cause.message : "";
  return new ConnectionFailed(`${url} can't be reached, or broke the connection off${reason && `: ${reason}`}.`, {
    cause,
    hint: "Check the address and whether the platform is running.",
  });
}

import { openLocalFile, writeLocalFile } from "#machine";
import { type Content, chunksOf, streamOf } from "./bytes.ts";
import { withoutUndefined } from "./commands.ts";
import { NotFound } from "./errors.ts";
import { followEvents } from "./event-stream.ts";
import { type CallOptions, fillPath, type Http, type Request, type RequestBody } from "./http.ts";
import { List } from "./list.ts";
import { toCamelCase } from "./names.ts";
import type { Entry } from "./records.ts";
import { withResolvers } from "./time.ts";

/** Permission bits: `0o644` or `"0644"`. */
export type Mode = number | string;

export interface WriteOptions extends CallOptions {
  /** 0644 for a new file by default; one that is replaced keeps its own. */
  mode?: Mode | undefined;
  /** Makes the folders that are missing. */
  parents?: boolean | undefined;
  /** Writes only a file that has not changed since, by its `etag`. */
  ifMatch?: string | undefined;
  /** Writes only a file that isn't there yet. */
  isNew?: boolean | undefined;
}

export interface ReadOptions<Format extends ReadFormat = ReadFormat> extends CallOptions {
  /** `text` by default. */
  format?: Format | undefined;
  /** A part of the file: the first byte and how many. */
  offset?: number | undefined;
  length?: number | undefined;
}

export type ReadFormat = "text" | "bytes" | "stream";
type ReadResult = { text: string; bytes: Uint8Array; stream: ReadableStream<Uint8Array> };

/** A change of a file. */
export interface FileChange {
  /** `overflow`: changes were lost. */
  type: "create" | "write" | "delete" | "move" | "attrib" | "overflow";
  path: string | null;
  /** Where a move led. */
  to: string | null;
}

export interface FileWatch {
  stop(): void;
  /** Resolves after `stop`, and rejects with what ended it before. */
  readonly closed: Promise<void>;
}

/** An entry, and what changes when its content does. */
export type Stat = Entry & { etag: string | undefined };

const transferMs = 120_000;
const folderMs = 150_000;
const maxPageSize = 1000;

/** The files of a sandbox, with the rights of its user. A relative path starts at the image's folder. */
export class Files {
  readonly #http: Http;
  readonly #params: { sandbox_id: string };

  constructor(http: Http, sandboxId: string) {
    this.#http = http;
    this.#params = { sandbox_id: sandboxId };
  }

  /** Reads a file. Part of one is never taken for the whole: a stream of a download that breaks off fails. */
  async read<Format extends ReadFormat = "text">(
    path: string,
    o: ReadOptions<Format> = {},
  ): Promise<ReadResult[Format]> {
    const { format = "text", offset, length, ...call } = o;
    const range = rangeOf(offset, length);
    const request = this.#request("GET", "/sandboxes/{sandbox_id}/files", {
      query: { path },
      ...(range && { headers: { range } }),
      attemptMs: transferMs,
      ...call,
    });
    const read = async (response: Response): Promise<unknown> => {
      if (format === "stream") return response.body ?? new Response("").body;
      if (format === "bytes") return new Uint8Array(await response.arrayBuffer());
      return response.text();
    };
    const content = async () => {
      if (length !== 0) return this.#http.read(request, read);
      // A range of HTTP has a byte at least.
      await this.stat(path, { follow: true, ...call });
      return read(new Response(""));
    };
    // Each format has its own type, which the table above names.
    return (await content()) as ReadResult[Format];
  }

  /** Writes a file, which others see whole or not at all. */
  async write(path: string, content: Content, o: WriteOptions = {}): Promise<Entry> {
    return this.#write(path, bodyOf(content), o);
  }

  /** Writes a file from a local one. */
  async upload(localPath: string, path: string, o: WriteOptions = {}): Promise<Entry> {
    const local = await openLocalFile(localPath);
    return this.#write(path, { body: local.open, isOnce: local.isOnce }, o);
  }

  /** Reads a file into a local one, which is there whole or not at all. Returns its size in bytes. */
  async download(path: string, localPath: string, o: CallOptions = {}): Promise<number> {
    const content = await this.read(path, { ...o, format: "stream" });
    try {
      return await writeLocalFile(localPath, chunksOf(content));
    } catch (error) {
      // One that nobody has begun to read keeps its connection.
      await content.cancel().catch(() => {});
      throw error;
    }
  }

  #write(path: string, body: FileBody, o: WriteOptions): Promise<Entry> {
    const { mode, parents, ifMatch, isNew, ...call } = o;
    const headers = {
      ...(ifMatch !== undefined && { "if-match": ifMatch }),
      ...(isNew && { "if-none-match": "*" }),
    };
    return this.#http.call("PUT", "/sandboxes/{sandbox_id}/files", {
      params: this.#params,
      query: withoutUndefined({ path, mode: toMode(mode), parents }),
      ...body,
      headers,
      // The condition may no longer hold after a try whose answer was lost.
      repeatable: ifMatch === undefined && !isNew,
      attemptMs: Number.POSITIVE_INFINITY,
      ...call,
    });
  }

  /** What is in a folder; with a `depth` above 1 also in the folders in it. `await` gives an array. */
  list(path: string, o: { depth?: number | undefined; limit?: number | undefined } & CallOptions = {}): List<Entry> {
    const { depth, limit = maxPageSize, ...call } = o;
    return new List(async ({ cursor, signal = call.signal }) => {
      const { entries, nextCursor } = await this.#http.call("GET", "/sandboxes/{sandbox_id}/files/entries", {
        params: this.#params,
        query: withoutUndefined({ path, depth, limit, cursor }),
        attemptMs: folderMs,
        ...call,
        signal,
      });
      return { items: entries, nextCursor };
    });
  }

  /** Describes a file or folder; through a link its target with `follow`. */
  async stat(path: string, o: { follow?: boolean | undefined } & CallOptions = {}): Promise<Stat> {
    const { follow, ...call } = o;
    const request = this.#request("GET", "/sandboxes/{sandbox_id}/files/entry", { query: { path, follow }, ...call });
    return this.#http.read(request, async (response) => ({
      ...toCamelCase<Entry>(await response.json()),
      etag: response.headers.get("etag") ?? undefined,
    }));
  }

  async exists(path: string, o: CallOptions = {}): Promise<boolean> {
    try {
      await this.stat(path, o);
      return true;
    } catch (error) {
      if (error instanceof NotFound) return false;
      throw error;
    }
  }

  /** Removes a file, a link itself, an empty folder, or a folder with all that is in it. */
  async remove(
    path: string,
    o: { recursive?: boolean | undefined; ifMatch?: string | undefined } & CallOptions = {},
  ): Promise<void> {
    const { recursive, ifMatch, ...call } = o;
    await this.#http.call("DELETE", "/sandboxes/{sandbox_id}/files", {
      params: this.#params,
      query: withoutUndefined({ path, recursive }),
      ...(ifMatch !== undefined && { headers: { "if-match": ifMatch } }),
      attemptMs: folderMs,
      ...call,
    });
  }

  /** Moves a file or folder; over something only with `overwrite`. */
  rename(from: string, to: string, o: { overwrite?: boolean | undefined } & CallOptions = {}): Promise<Entry> {
    const { overwrite, ...call } = o;
    return this.#http.call("POST", "/sandboxes/{sandbox_id}/files/move", {
      params: this.#params,
      json: withoutUndefined({ from, to, overwrite }),
      attemptMs: folderMs,
      ...call,
    });
  }

  /** Makes a folder; with `parents` also those above it, and one that is there is no error. */
  makeDir(
    path: string,
    o: { parents?: boolean | undefined; mode?: Mode | undefined } & CallOptions = {},
  ): Promise<Entry> {
    const { parents, mode, ...call } = o;
    return this.#http.call("POST", "/sandboxes/{sandbox_id}/files/directories", {
      params: this.#params,
      json: withoutUndefined({ path, parents, mode: toMode(mode) }),
      repeatable: parents === true,
      ...call,
    });
  }

  /** Sets the permission bits of a file or folder; through a link those of its target. */
  chmod(path: string, mode: Mode, o: CallOptions = {}): Promise<Entry> {
    return this.#http.call("PATCH", "/sandboxes/{sandbox_id}/files", {
      params: this.#params,
      query: { path },
      json: { mode: toMode(mode) },
      ...o,
    });
  }

  /** Reads a folder, or a file, as a tar archive. */
  readArchive(path: string, o: CallOptions = {}): Promise<ReadableStream<Uint8Array>> {
    const rest = { query: { path }, attemptMs: transferMs, ...o };
    const request = this.#request("GET", "/sandboxes/{sandbox_id}/files/archive", rest);
    return this.#http.read(request, async ({ body }) => body ?? new Blob([]).stream());
  }

  /** Unpacks a tar archive into a folder. */
  async writeArchive(
    path: string,
    content: Content,
    o: { gzip?: boolean | undefined } & CallOptions = {},
  ): Promise<void> {
    const { gzip, ...call } = o;
    await this.#http.call("PUT", "/sandboxes/{sandbox_id}/files/archive", {
      params: this.#params,
      query: { path },
      ...bodyOf(content),
      ...(gzip && { headers: { "content-encoding": "gzip" } }),
      attemptMs: Number.POSITIVE_INFINITY,
      ...call,
    });
  }

  /**
   * Tells of changes of a file or of what is in a folder, from when it returns until `stop`. Where the connection broke
   * off meanwhile changes may be lost, which an `overflow` says.
   */
  async watch(
    path: string,
    onEvent: (change: FileChange) => void,
    o: { recursive?: boolean | undefined; signal?: AbortSignal | undefined } = {},
  ): Promise<FileWatch> {
    const { recursive, signal } = o;
    const stopped = new AbortController();
    const ready = withResolvers();
    const events = followEvents({
      open: (_lastId, connection) =>
        this.#http.send(
          this.#request("GET", "/sandboxes/{sandbox_id}/files/watch", {
            query: { path, recursive },
            headers: { accept: "text/event-stream" },
            signal: connection,
          }),
        ),
      isLast: () => false,
      signal: signal ? AbortSignal.any([signal, stopped.signal]) : stopped.signal,
    });
    const follow = async () => {
      let isFirst = true;
      for await (const { event, data } of events) {
        if (event === "end") continue;
        if (event !== "ready") onEvent(toCamelCase<FileChange>(JSON.parse(data)));
        else if (!isFirst) onEvent({ type: "overflow", path: null, to: null });
        isFirst = false;
        ready.resolve();
      }
    };
    const closed = follow().catch((error: unknown) => {
      if (stopped.signal.aborted) return;
      ready.reject(error);
      throw error;
    });
    closed.catch(() => {});
    await ready.promise;
    return { stop: () => stopped.abort(), closed };
  }

  #request(method: Request["method"], path: string, rest: Omit<Request, "method" | "path">): Request {
    return { method, path: fillPath(path, this.#params), ...rest };
  }
}

function toMode(mode: Mode): string;
function toMode(mode: Mode | undefined): string | undefined;
function toMode(mode: Mode | undefined): string | undefined {
  return typeof mode === "number" ? mode.toString(8).padStart(4, "0") : mode;
}

function rangeOf(offset: number | undefined, length: number | undefined): string | undefined {
  if (offset === undefined && length === undefined) return undefined;
  const first = offset ?? 0;
  return `bytes=${first}-${length === undefined ? "" : first + length - 1}`;
}

type FileBody = { body: () => RequestBody; isOnce: boolean };

function bodyOf(content: Content): FileBody {
  if (
    typeof content === "string" ||
    content instanceof Uint8Array ||
    content instanceof ArrayBuffer ||
    content instanceof Blob
  ) {
    return { body: () => content, isOnce: false };
  }
  return { body: () => (content instanceof ReadableStream ? content : streamOf(content)), isOnce: true };
}

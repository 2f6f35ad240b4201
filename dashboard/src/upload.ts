import { Sandgate } from "@sandgate/client";
import { apiUrl } from "./api.ts";
import { quote } from "./curl.ts";
import { provideToken } from "./session.ts";
import { noteUnsaved } from "./unsaved.ts";

/** What is to be uploaded; undefined for a folder, which can't be. */
export interface Content {
  name: string;
  file: File | undefined;
}

export interface Upload {
  id: number;
  sandboxId: string;
  name: string;
  size: number;
  /** So many bytes of it have been sent. */
  sent: number;
  error?: unknown;
  isDone?: boolean;
}

let uploads: readonly Upload[] = [];
let lastId = 0;
const listeners = new Set<() => void>();

function become(next: readonly Upload[]): void {
  uploads = next;
  for (const listener of listeners) listener();
}

const update = (id: number, change: Partial<Upload>) =>
  become(uploads.map((each) => (each.id === id ? { ...each, ...change } : each)));

/** All that are under way and all that failed, of any sandbox. It stays the same list until one of them changes. */
export const currentUploads = (): readonly Upload[] => uploads;

/** Returns what ends it. */
export function onUploadsChange(listener: () => void): () => void {
  listeners.add(listener);
  return () => void listeners.delete(listener);
}

export function forgetUploads(ids: readonly number[]): void {
  become(uploads.filter(({ id }) => !ids.includes(id)));
}

/** Uploads files one after another. Those that are done are shown until `afterwards` is. */
export async function uploadFiles(
  contents: readonly Content[],
  o: {
    sandbox: { id: string; name: string };
    workspaceId: string;
    toPath(name: string): string;
    afterwards(): Promise<unknown>;
  },
): Promise<void> {
  const { sandbox, workspaceId, toPath, afterwards } = o;
  const added = contents.map(({ name, file }) => ({
    id: ++lastId,
    sandboxId: sandbox.id,
    name,
    file,
    size: file?.size ?? 0,
    sent: 0,
  }));
  become([...uploads, ...added]);
  const done: number[] = [];
  const end = noteUnsaved();
  for (const { id, name, file, size } of added) {
    const path = toPath(name);
    try {
      if (!file) {
        const line = `npx sandgate cp -r FOLDER ${quote(`${sandbox.name}:${path}`)}`;
        throw new Error(`Folders can't be uploaded here. From a shell: ${line}`);
      }
      await uploadFile(sandbox.id, path, file, { workspaceId, onProgress: (sent) => update(id, { sent }) });
      update(id, { isDone: true, sent: size });
      done.push(id);
    } catch (error) {
      update(id, { error });
    }
  }
  end();
  await afterwards();
  forgetUploads(done);
}

async function uploadFile(
  sandboxId: string,
  path: string,
  content: Blob,
  o: { workspaceId: string; onProgress(sent: number): void },
): Promise<void> {
  // The client sends it, by what can tell how far it is.
  const fetch = fetchWithProgress(o.onProgress);
  const sandgate = new Sandgate({ url: apiUrl, token: provideToken, workspace: o.workspaceId, fetch });
  const sandbox = await sandgate.sandboxes.get(sandboxId);
  await sandbox.files.write(path, content);
}

/** A `fetch` that tells how much of a request's body has been sent, which the platform's own can't. */
function fetchWithProgress(onProgress: (sent: number) => void): typeof fetch {
  return async (input, init = {}) => {
    if (!(init.body instanceof Blob)) return fetch(input, init);
    const request = new XMLHttpRequest();
    request.open(init.method ?? "PUT", String(input));
    request.responseType = "blob";
    for (const [name, value] of new Headers(init.headers)) request.setRequestHeader(name, value);
    request.upload.addEventListener("progress", ({ loaded }) => onProgress(loaded));
    const { signal } = init;
    const abort = () => request.abort();
    signal?.addEventListener("abort", abort, { once: true });
    const answered = new Promise<Response>((resolve, reject) => {
      request.addEventListener("load", () => {
        const { status, statusText, response } = request;
        const body = status === 204 ? null : (response as Blob);
        resolve(new Response(body, { status, statusText, headers: headersOf(request) }));
      });
      request.addEventListener("error", () => reject(new TypeError("The request failed.")));
      request.addEventListener("abort", () => reject(signal?.reason ?? new DOMException("Aborted", "AbortError")));
    });
    request.send(init.body);
    return answered.finally(() => signal?.removeEventListener("abort", abort));
  };
}

function headersOf(request: XMLHttpRequest): Headers {
  const headers = new Headers();
  for (const line of request.getAllResponseHeaders().split("\r\n")) {
    const at = line.indexOf(":");
    if (at > 0) headers.append(line.slice(0, at), line.slice(at + 1).trim());
  }
  return headers;
}

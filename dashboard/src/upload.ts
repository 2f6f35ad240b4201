import { type Entry, Sandgate } from "@sandgate/client";
import { apiUrl } from "./api.ts";
import { provideToken } from "./session.ts";

/** Writes a file of a sandbox, and tells how many bytes of it have been sent. */
export async function uploadFile(
  sandboxId: string,
  path: string,
  content: Blob,
  o: { workspaceId: string; onProgress(sent: number): void },
): Promise<Entry> {
  // The client sends it, by what can tell how far it is.
  const fetch = fetchWithProgress(o.onProgress);
  const sandgate = new Sandgate({ url: apiUrl, token: provideToken, workspace: o.workspaceId, fetch });
  const sandbox = await sandgate.sandboxes.get(sandboxId);
  return sandbox.files.write(path, content);
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

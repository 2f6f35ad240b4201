import { request as httpsRequest } from "node:https";

/** One request with JSON both ways. Throws for any status from 400 on. */
export type CallServer = (method: string, path: string, body?: unknown) => Promise<unknown>;

/** The conditions of a node. */
export function conditionsOf(node: unknown): { type: string; status: string }[] {
  return (node as { status?: { conditions?: { type: string; status: string }[] } }).status?.conditions ?? [];
}

/** `CallServer` for one server and token. */
export function callServer(o: {
  server: string;
  ca: Buffer;
  token: string;
  method: string;
  path: string;
  body: unknown;
}): Promise<unknown> {
  return new Promise((resolve, reject) => {
    const body = o.body === undefined ? undefined : JSON.stringify(o.body);
    const call = httpsRequest(new URL(o.path, o.server), {
      ca: o.ca,
      method: o.method,
      headers: {
        authorization: `Bearer ${o.token}`,
        "content-type": o.method === "PATCH" ? "application/strategic-merge-patch+json" : "application/json",
        // Without it a DELETE has no body.
        ...(body !== undefined && { "content-length": Buffer.byteLength(body) }),
      },
      timeout: 30_000,
      agent: false,
    });
    call.on("error", reject);
    call.on("timeout", () => call.destroy(new Error(`${o.method} ${o.path} took more than 30 s`)));
    call.on("response", (response) => {
      let text = "";
      response.setEncoding("utf8").on("data", (chunk: string) => {
        text += chunk;
      });
      response.on("error", reject);
      response.on("end", () => {
        const status = response.statusCode ?? 0;
        if (status >= 400) reject(new Error(`${o.method} ${o.path}: ${status} ${text.slice(0, 500)}`));
        else resolve(text.startsWith("{") ? JSON.parse(text) : text);
      });
    });
    call.end(body);
  });
}

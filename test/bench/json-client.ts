import { Agent as HttpAgent, request as httpRequest } from "node:http";
import { Agent as HttpsAgent, request as httpsRequest } from "node:https";

export interface JsonRequest {
  body?: unknown;
  headers?: Record<string, string>;
  /** Statuses that are no failure; 200 and 201 unless given. */
  allowed?: readonly number[];
}

/** A client that costs little itself: connections are kept, and answers are only parsed. */
export interface JsonClient {
  /** Answers the body. */
  // biome-ignore lint/suspicious/noExplicitAny: the body is what the bench expects it to be
  call(method: string, path: string, request?: JsonRequest): Promise<any>;
  /** Reads an answer line by line. Resolves at its end, or once `signal` aborts. */
  follow(
    path: string,
    o: { headers?: Record<string, string>; signal: AbortSignal; onLine(line: string): void },
  ): Promise<void>;
  close(): void;
}

/** @param ca certificates, PEM */
export function openJsonClient(url: string, o: { headers: Record<string, string>; ca?: Buffer }): JsonClient {
  const isSecure = url.startsWith("https:");
  const options = { keepAlive: true, maxSockets: 128, ...(o.ca && { ca: o.ca }) };
  const agent = isSecure ? new HttpsAgent(options) : new HttpAgent(options);
  const request = isSecure ? httpsRequest : httpRequest;
  return {
    call: (method, path, { body, headers: more, allowed = [200, 201] } = {}) =>
      new Promise((resolve, reject) => {
        const text = body === undefined ? undefined : JSON.stringify(body);
        const type = method === "PATCH" ? "application/strategic-merge-patch+json" : "application/json";
        const headers = { ...o.headers, ...more, ...(text !== undefined && { "content-type": type }) };
        const sent = request(new URL(path, url), { method, headers, agent }, (response) => {
          let answer = "";
          response.setEncoding("utf8").on("data", (chunk: string) => {
            answer += chunk;
          });
          response.on("error", reject);
          response.on("end", () => {
            const status = response.statusCode ?? 0;
            if (!allowed.includes(status)) reject(new Error(`${method} ${path}: ${status} ${answer.slice(0, 500)}`));
            else resolve(answer === "" ? undefined : JSON.parse(answer));
          });
        });
        sent.on("error", reject);
        sent.end(text);
      }),
    follow: (path, { headers: more, signal, onLine }) =>
      new Promise((resolve, reject) => {
        const fail = (error: Error) => (signal.aborted ? resolve() : reject(error));
        const headers = { ...o.headers, ...more };
        const sent = request(new URL(path, url), { headers, agent, signal }, (response) => {
          if (response.statusCode !== 200) return reject(new Error(`GET ${path}: ${response.statusCode}`));
          let rest = "";
          response.setEncoding("utf8").on("data", (chunk: string) => {
            const lines = `${rest}${chunk}`.split("\n");
            rest = lines.pop() ?? "";
            for (const line of lines) onLine(line);
          });
          response.on("error", fail);
          response.on("end", resolve);
        });
        sent.on("error", fail);
        sent.end();
      }),
    close: () => agent.destroy(),
  };
}

import { once } from "node:events";
import { type IncomingHttpHeaders, type IncomingMessage, request } from "node:http";
import { connect, type Socket } from "node:net";

export interface PreviewAnswer {
  status: number;
  headers: IncomingHttpHeaders;
  text: string;
}

/** A client of one preview, whose host need not be known to any name server. */
export interface PreviewClient {
  /** "<label>.<domain>[:port]" */
  host: string;
  get(path?: string, headers?: Record<string, string>): Promise<PreviewAnswer>;
  send(method: string, path: string, headers?: Record<string, string>, body?: string): Promise<PreviewAnswer>;
  /** The answer as soon as its headers have come. */
  open(method: string, path: string, headers?: Record<string, string>): Promise<IncomingMessage>;
  /** A connection on which a WebSocket was asked for, and the first that comes on it. */
  upgrade(path: string, headers?: Record<string, string>): Promise<{ socket: Socket; answer: string }>;
}

/**
 * @param o.via where the platform is
 * @param o.headers sent with each request
 */
export function createPreviewClient(o: { via: string; url: string; headers?: Record<string, string> }): PreviewClient {
  const { hostname, port } = new URL(o.via);
  const { host } = new URL(o.url);
  const allOf = (headers: Record<string, string> = {}) => ({ ...o.headers, ...headers, host });

  async function open(method: string, path: string, headers?: Record<string, string>, body?: string) {
    const sent = request({ hostname, port, method, path, headers: allOf(headers), agent: false }).end(body);
    const [answer]: IncomingMessage[] = await once(sent, "response");
    if (!answer) throw new Error("no answer");
    return answer;
  }
  async function send(method: string, path: string, headers?: Record<string, string>, body?: string) {
    const answer = await open(method, path, headers, body);
    let text = "";
    for await (const chunk of answer.setEncoding("utf8")) text += chunk;
    return { status: answer.statusCode ?? 0, headers: answer.headers, text };
  }

  return {
    host,
    get: (path = "/", headers) => send("GET", path, headers),
    send,
    open,
    async upgrade(path, headers) {
      const socket = connect(Number(port), hostname);
      const handshake = {
        connection: "Upgrade",
        upgrade: "websocket",
        "sec-websocket-version": "13",
        "sec-websocket-key": "dGhlIHNhbXBsZSBub25jZQ==",
      };
      const lines = Object.entries({ ...allOf(headers), ...handshake }).map(([name, value]) => `${name}: ${value}`);
      socket.write([`GET ${path} HTTP/1.1`, ...lines, "", ""].join("\r\n"));
      const [answer] = await once(socket, "data");
      return { socket, answer: String(answer) };
    },
  };
}

import { once } from "node:events";
import { createServer, type IncomingMessage, request, type ServerResponse } from "node:http";
import { type AddressInfo, connect } from "node:net";
import type { Duplex } from "node:stream";
import { pipeline } from "node:stream/promises";

/** One address for several replicas: each request goes to the next in turn. */
export interface Balancer extends AsyncDisposable {
  readonly url: string;
  /** To be set before the first request. */
  replicas: readonly string[];
}

export async function openBalancer(): Promise<Balancer> {
  let turn = 0;
  const next = (): string => balancer.replicas[turn++ % balancer.replicas.length] ?? "";
  const server = createServer((incoming, outgoing) => {
    pass(incoming, outgoing, next()).catch(() => outgoing.destroy());
  });
  server.on("upgrade", (incoming, socket, head) => {
    passUpgrade(incoming, socket, head, next()).catch(() => socket.destroy());
  });
  server.listen(0, "127.0.0.1");
  await once(server, "listening");
  const { port } = server.address() as AddressInfo;
  const balancer: Balancer = {
    url: `http://127.0.0.1:${port}`,
    replicas: [],
    async [Symbol.asyncDispose]() {
      server.closeAllConnections();
      server.close();
    },
  };
  return balancer;
}

/** What breaks on one side breaks on the other. */
async function pass(incoming: IncomingMessage, outgoing: ServerResponse, replica: string): Promise<void> {
  const { method, headers, url = "/" } = incoming;
  const onward = request(replica, { path: url, method, headers });
  outgoing.once("close", () => onward.destroy());
  const answered = once(onward, "response") as Promise<[IncomingMessage]>;
  // Some are answered before all of them has come, and what the connection fails with is told by the answer.
  pipeline(incoming, onward).catch(() => {});
  const [answer] = await answered;
  outgoing.writeHead(answer.statusCode ?? 502, answer.rawHeaders);
  outgoing.flushHeaders();
  await pipeline(answer, outgoing);
}

async function passUpgrade(incoming: IncomingMessage, socket: Duplex, head: Buffer, replica: string): Promise<void> {
  const { method, url, rawHeaders } = incoming;
  const { hostname, port } = new URL(replica);
  const onward = connect({ host: hostname, port: Number(port), allowHalfOpen: true });
  const lines = rawHeaders.map((text, i) => (i % 2 === 0 ? `${text}: ` : `${text}\r\n`)).join("");
  onward.write(`${method} ${url} HTTP/1.1\r\n${lines}\r\n`, "latin1");
  onward.write(head);
  await pipeline(socket, onward, socket);
}

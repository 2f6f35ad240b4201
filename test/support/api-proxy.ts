import { once } from "node:events";
import { readFile, writeFile } from "node:fs/promises";
import { Agent, createServer, request as httpsRequest } from "node:https";
import type { AddressInfo, Socket } from "node:net";

export interface ApiProxyRequest {
  method: string;
  /** With its query. */
  path: string;
}

/** An answer in the API server's stead. */
export interface ApiProxyRefusal {
  status: number;
  headers?: Readonly<Record<string, string>>;
}

/**
 * Stands between a client and the API server of a cluster that was started here, and knows requests from each other.
 */
export interface ApiProxy {
  /** `https://127.0.0.1:port`, with the API server's own certificate. */
  url: string;
  /** Answers requests itself, from now on; undefined lets one through. */
  refuse(decide: (request: ApiProxyRequest) => ApiProxyRefusal | undefined): void;
  /** Changes what is sent to the API server, as JSON, from now on. */
  rewrite(change: (request: ApiProxyRequest, body: string) => string): void;
  /** Resets all connections, watches among them. */
  cut(): void;
  /** How many requests it was sent that fit. */
  count(fits: (request: ApiProxyRequest) => boolean): number;
  /** A copy of a kubeconfig that leads here instead, in the same folder; answers its path. */
  writeKubeconfig(kubeconfig: string): Promise<string>;
  close(): Promise<void>;
}

/**
 * @param certificate the files of the API server's certificate
 * @param client the files of a certificate that it connects with, since that of its own client doesn't come through
 */
export async function openApiProxy(o: {
  server: string;
  certificate: { cert: string; key: string };
  certificateAuthority: string;
  client?: { cert: string; key: string };
}): Promise<ApiProxy> {
  const files = async ({ cert, key }: { cert: string; key: string }) => ({
    cert: await readFile(cert),
    key: await readFile(key),
  });
  const agent = new Agent({
    keepAlive: true,
    ca: await readFile(o.certificateAuthority),
    ...(o.client && (await files(o.client))),
  });
  const sockets = new Set<Socket>();
  const seen: ApiProxyRequest[] = [];
  let refuse: (request: ApiProxyRequest) => ApiProxyRefusal | undefined = () => undefined;
  let rewrite: ((request: ApiProxyRequest, body: string) => string) | undefined;

  const proxy = createServer(await files(o.certificate), async (incoming, outgoing) => {
    const request = { method: incoming.method ?? "", path: incoming.url ?? "" };
    seen.push(request);
    const chunks: Buffer[] = [];
    // A client that goes away meanwhile gets no answer.
    const isWhole = await incoming
      .forEach((chunk: Buffer) => void chunks.push(chunk))
      .then(
        () => true,
        () => false,
      );
    if (!isWhole) return;
    const refusal = refuse(request);
    if (refusal) {
      const headers = { "content-type": "application/json", ...refusal.headers };
      const body = { kind: "Status", status: "Failure", reason: "Injected", code: refusal.status };
      return void outgoing.writeHead(refusal.status, headers).end(JSON.stringify(body));
    }
    const given = Buffer.concat(chunks);
    const body = rewrite && given.length > 0 ? Buffer.from(rewrite(request, given.toString())) : given;
    const headers = { ...incoming.headers, host: new URL(o.server).host };
    if (body.length > 0) headers["content-length"] = String(body.length);
    const upstream = httpsRequest(new URL(request.path, o.server), { agent, method: request.method, headers });
    const giveUp = () => incoming.socket.destroy();
    upstream.on("error", giveUp);
    upstream.on("response", (response) => {
      outgoing.writeHead(response.statusCode ?? 502, response.headers);
      outgoing.flushHeaders();
      response.on("error", giveUp).pipe(outgoing);
    });
    outgoing.on("close", () => upstream.destroy());
    upstream.end(body);
  });
  proxy.on("secureConnection", (socket: Socket) => {
    sockets.add(socket);
    socket.on("error", () => {}).on("close", () => sockets.delete(socket));
  });
  await once(proxy.listen(0, "127.0.0.1"), "listening");
  const url = `https://127.0.0.1:${(proxy.address() as AddressInfo).port}`;

  return {
    url,
    refuse(decide) {
      refuse = decide;
    },
    rewrite(change) {
      rewrite = change;
    },
    cut() {
      for (const socket of sockets) socket.destroy();
    },
    count: (fits) => seen.filter(fits).length,
    async writeKubeconfig(kubeconfig) {
      const path = `${kubeconfig}.proxy`;
      await writeFile(path, (await readFile(kubeconfig, "utf8")).replaceAll(o.server, url), { mode: 0o600 });
      return path;
    },
    async close() {
      proxy.close();
      for (const socket of sockets) socket.destroy();
      agent.destroy();
      await once(proxy, "close");
    },
  };
}

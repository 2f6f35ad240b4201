import { randomBytes, timingSafeEqual } from "node:crypto";
import { once } from "node:events";
import { createReadStream } from "node:fs";
import { createServer, type IncomingMessage, type Server, type ServerResponse } from "node:http";
import type { AddressInfo } from "node:net";
import { pipeline } from "node:stream";
import { setTimeout as delay } from "node:timers/promises";

/** One image for one pull. The pull's credential gives access to nothing else. */
export interface ServedImage {
  /** Its repository's name here. */
  readonly name: string;
  readonly manifest: { readonly digest: string; readonly mediaType: string; readonly content: Uint8Array };
  readonly config: { readonly digest: string; readonly content: Uint8Array };
  /** The digest of each layer, with the file of its verified bytes; undefined: not downloaded. */
  readonly layers: ReadonlyMap<string, ServedFile | undefined>;
}

export interface ServedFile {
  readonly path: string;
  readonly sizeBytes: number;
}

/** A pull that is under way. Its credential is good until `end`. */
export interface OpenPull {
  readonly username: string;
  readonly password: string;
  /** Digests of layers that were asked for and are not downloaded. */
  missing(): string[];
  end(): void;
}

/** A read-only registry (opencontainers/distribution-spec) on the loopback address, for the engine on this host. */
export interface PullEndpoint {
  /** Starts to listen unless it does, and returns `host:port`. Throws where it can't. */
  listen(): Promise<string>;
  open(image: ServedImage): OpenPull;
  close(): Promise<void>;
}

/** The host whose registries engines reach by plain HTTP without being configured to. */
const host = "127.0.0.1";
/** An engine asks for several layers at once: time for the others to be asked for before one is refused. */
const refusalMs = 100;

/** @param port 0: any that is free */
export function createPullEndpoint(port: number): PullEndpoint {
  const pulls = new Map<string, { image: ServedImage; password: Buffer; missing: Set<string> }>();
  let listening: Promise<string> | undefined;
  let server: Server | undefined;

  /** The pull whose credential this is. */
  function pullOf({ headers }: IncomingMessage) {
    const encoded = /^Basic ([A-Za-z0-9+/=]+)$/i.exec(headers.authorization ?? "")?.[1] ?? "";
    const [username = "", password = ""] = Buffer.from(encoded, "base64").toString().split(":");
    const pull = pulls.get(username);
    const given = Buffer.from(password);
    return pull && given.length === pull.password.length && timingSafeEqual(given, pull.password) ? pull : undefined;
  }

  async function answer(request: IncomingMessage, response: ServerResponse): Promise<void> {
    const pull = pullOf(request);
    if (!pull) {
      response.setHeader("www-authenticate", 'Basic realm="sandgate"');
      return refuse(response, 401, "UNAUTHORIZED");
    }
    if (request.method !== "GET" && request.method !== "HEAD") return refuse(response, 405, "UNSUPPORTED");
    const { pathname } = new URL(request.url ?? "/", "http://host");
    if (pathname === "/v2/" || pathname === "/v2")
      return send(request, response, "application/json", Buffer.from("{}"));
    const { image } = pull;
    const [, kind, digest = ""] = /\/(manifests|blobs)\/([a-z0-9]+:[a-f0-9]+)$/.exec(pathname) ?? [];
    if (pathname !== `/v2/${image.name}/${kind}/${digest}`) return refuse(response, 404, "NAME_UNKNOWN");
    response.setHeader("docker-content-digest", digest);
    if (kind === "manifests") {
      if (digest !== image.manifest.digest) return refuse(response, 404, "MANIFEST_UNKNOWN");
      return send(request, response, image.manifest.mediaType, image.manifest.content);
    }
    if (digest === image.config.digest)
      return send(request, response, "application/octet-stream", image.config.content);
    if (!image.layers.has(digest)) return refuse(response, 404, "BLOB_UNKNOWN");
    const file = image.layers.get(digest);
    if (file !== undefined) return sendFile(request, response, file);
    pull.missing.add(digest);
    await delay(refusalMs);
    // Engines don't try again what is denied.
    return refuse(response, 403, "DENIED");
  }

  async function listen(): Promise<string> {
    server = createServer((request, response) => {
      answer(request, response).catch((error: Error) => response.destroy(error));
    });
    server.listen(port, host);
    await once(server, "listening").catch((cause: NodeJS.ErrnoException) => {
      if (cause.code !== "EADDRINUSE") throw cause;
      throw new Error(`port ${port} on ${host} is in use: set SANDGATE_PULL_PORT to another one`, { cause });
    });
    const { port: given } = server.address() as AddressInfo;
    return `${host}:${given}`;
  }

  return {
    listen() {
      listening ??= listen().catch((error: unknown) => {
        // The next call tries again: the port may be held by a process that is about to end.
        listening = undefined;
        throw error;
      });
      return listening;
    },
    open(image) {
      const [username, password] = [randomBytes(16).toString("hex"), randomBytes(32).toString("hex")];
      const missing = new Set<string>();
      pulls.set(username, { image, password: Buffer.from(password), missing });
      return { username, password, missing: () => [...missing], end: () => pulls.delete(username) };
    },
    async close() {
      pulls.clear();
      if (!server?.listening) return;
      server.closeAllConnections();
      server.close();
      await once(server, "close");
    },
  };
}

function send({ method }: IncomingMessage, response: ServerResponse, type: string, content: Uint8Array): void {
  response.writeHead(200, { "content-type": type, "content-length": content.length });
  response.end(method === "HEAD" ? undefined : content);
}

function sendFile({ method }: IncomingMessage, response: ServerResponse, { path, sizeBytes }: ServedFile): void {
  response.writeHead(200, { "content-type": "application/octet-stream", "content-length": sizeBytes });
  if (method === "HEAD") {
    response.end();
    return;
  }
  // A failure interrupts the answer, which is then shorter than its content-length.
  pipeline(createReadStream(path, { highWaterMark: 256 * 1024 }), response, () => {});
}

/** Errors as the distribution specification has them. */
function refuse(response: ServerResponse, status: number, code: string): void {
  response.writeHead(status, { "content-type": "application/json" });
  response.end(JSON.stringify({ errors: [{ code, message: code.toLowerCase().replaceAll("_", " ") }] }));
}

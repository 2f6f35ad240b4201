import { execFile } from "node:child_process";
import { createHash, randomUUID, sign, X509Certificate } from "node:crypto";
import { createSocket } from "node:dgram";
import { promises as dns } from "node:dns";
import { once } from "node:events";
import { readFile, writeFile } from "node:fs/promises";
import { createServer, type IncomingMessage, type RequestListener } from "node:http";
import { createServer as createTcpServer } from "node:net";
import { join } from "node:path";
import { setTimeout as delay } from "node:timers/promises";
import { promisify } from "node:util";
import { findFreePort, startProcess } from "@sandgate/test-support/process";
import { probeRegistry, startRegistry } from "@sandgate/test-support/registry";
import { requireServer } from "@sandgate/test-support/require";
import { createTempFolder } from "@sandgate/test-support/temp-folder";
import { afterAll, beforeAll, describe, expect, test } from "vitest";
import { readAllowedHosts } from "./allowed-hosts.ts";
import { createGuardedRequest, readBody } from "./guarded-request.ts";
import { parseReference, type Reference } from "./reference.ts";
import type { RegistryAddress } from "./registry-address.ts";
import { type Credential, createRegistryClient } from "./registry-client.ts";

const ann = { username: "ann", password: "correct horse battery" };
const wrong = { username: "ann", password: "wrong" };
const manifestType = "application/vnd.oci.image.manifest.v1+json";
const indexType = "application/vnd.oci.image.index.v1+json";
const { signal } = new AbortController();
const cleanUps: (() => Promise<unknown>)[] = [];
afterAll(async () => {
  for (const cleanUp of cleanUps) await cleanUp();
});

/** A DNS server that gives every name this address. */
async function startDns(address: string): Promise<dns.Resolver> {
  const server = createSocket("udp4");
  server.on("message", (query, { port }) => {
    const nameEnd = query.indexOf(0, 12) + 1;
    const isForV4 = query.readUInt16BE(nameEnd) === 1;
    const header = Buffer.from(query.subarray(0, 12));
    header.writeUInt16BE(0x8180, 2);
    header.writeUInt32BE(isForV4 ? 0x00010001 : 0x00010000, 4);
    header.writeUInt32BE(0, 8);
    // The name by its place in the question, type A, class IN, 0 s, 4 bytes (RFC 1035, 4.1.3).
    const answer = Buffer.from([0xc0, 12, 0, 1, 0, 1, 0, 0, 0, 0, 0, 4, ...address.split(".").map(Number)]);
    const question = query.subarray(12, nameEnd + 4);
    server.send(Buffer.concat([header, question, ...(isForV4 ? [answer] : [])]), port);
  });
  server.bind(0, "127.0.0.1");
  await once(server, "listening");
  cleanUps.push(async () => server.close());
  const resolver = new dns.Resolver({ timeout: 30_000, tries: 1 });
  resolver.setServers([`127.0.0.1:${server.address().port}`]);
  return resolver;
}

function clientFor(...allow: string[]) {
  const allowed = readAllowedHosts(allow);
  return createRegistryClient(createGuardedRequest(allowed), allowed);
}

type Client = ReturnType<typeof clientFor>;

/** The digest that an image's reference resolves to; none of its layers is asked for. */
async function resolveDigest(
  client: Client,
  address: RegistryAddress,
  reference: Reference,
  credential: Credential | undefined,
): Promise<string> {
  return (await client.resolveImage(address, reference, credential, signal, async () => [])).digest;
}

function referenceOf(text: string): Reference {
  const reference = parseReference(text);
  if (reference === undefined) throw new Error(`${text} is no reference`);
  return reference;
}

function digestOf(text: string): string {
  return `sha256:${createHash("sha256").update(text).digest("hex")}`;
}

/** A manifest of an image without layers, with its config. */
function emptyImage(architecture = "amd64") {
  const config = JSON.stringify({ architecture, os: "linux", rootfs: { type: "layers", diff_ids: [] } });
  const manifest = JSON.stringify({
    schemaVersion: 2,
    mediaType: manifestType,
    config: {
      mediaType: "application/vnd.oci.image.config.v1+json",
      digest: digestOf(config),
      size: config.length,
    },
    layers: [],
  });
  return { config, manifest };
}

/** An index of manifests, each with its platform. */
function indexOf(...entries: { manifest: string; os?: string; architecture: string }[]): string {
  return JSON.stringify({
    schemaVersion: 2,
    mediaType: indexType,
    manifests: entries.map(({ manifest, os = "linux", architecture }) => ({
      mediaType: manifestType,
      digest: digestOf(manifest),
      size: manifest.length,
      platform: { os, architecture },
    })),
  });
}

/**
 * Pushes an image without layers to `host/repository:latest`, and an index of it and of one for another architecture to
 * `:index`, by the distribution API, and returns their digests.
 */
async function pushEmptyImages(host: string, repository: string, authorization: string) {
  const send = async (url: string, method: string, body?: string, type = "application/octet-stream") => {
    const response = await fetch(url, {
      method,
      headers: { authorization, "content-type": type },
      ...(body !== undefined && { body }),
    });
    if (!response.ok) throw new Error(`${method} ${url} answers ${response.status}: ${await response.text()}`);
    return response;
  };
  async function push({ config, manifest }: ReturnType<typeof emptyImage>, tag: string): Promise<string> {
    const upload = await send(`http://${host}/v2/${repository}/blobs/uploads/`, "POST");
    const location = new URL(upload.headers.get("location") ?? "", `http://${host}`);
    location.searchParams.set("digest", digestOf(config));
    await send(location.href, "PUT", config);
    await send(`http://${host}/v2/${repository}/manifests/${tag}`, "PUT", manifest, manifestType);
    return digestOf(manifest);
  }
  const [own, other] = [emptyImage(), emptyImage("s390x")];
  const digest = await push(own, "latest");
  await push(other, "other");
  const index = indexOf(
    { ...own, architecture: "amd64" },
    { ...own, architecture: "arm64" },
    { ...other, architecture: "s390x" },
  );
  await send(`http://${host}/v2/${repository}/manifests/index`, "PUT", index, indexType);
  return { digest, indexDigest: digestOf(index) };
}

function basic({ username, password }: Credential): string {
  return `Basic ${Buffer.from(`${username}:${password}`).toString("base64")}`;
}

const problem = (name: string) => expect.objectContaining({ name: "RegistryError", problem: name });
const hasRegistry = await requireServer("registry", probeRegistry);

describe.runIf(hasRegistry)("a registry with passwords", () => {
  let host: string;
  let digest: string;
  let indexDigest: string;

  beforeAll(async () => {
    const registry = await startRegistry({ users: [ann] });
    cleanUps.push(registry.stop);
    host = registry.host;
    ({ digest, indexDigest } = await pushEmptyImages(host, "team/tool", basic(ann)));
  });

  test("takes the right credential and no other", async () => {
    for (const scheme of ["http", undefined] as const) {
      await clientFor(host).checkCredential({ host, scheme }, ann, signal);
      await expect(clientFor(host).checkCredential({ host, scheme }, wrong, signal)).rejects.toThrow(
        problem("unauthorized"),
      );
    }
  });

  test("gives the digest of a tag, and of a digest that it has", async () => {
    const address = { host, scheme: undefined };
    const resolve = (text: string, credential?: Credential) =>
      resolveDigest(clientFor(host), address, referenceOf(text), credential);
    expect(await resolve(`${host}/team/tool`, ann)).toBe(digest);
    expect(await resolve(`${host}/team/tool@${digest}`, ann)).toBe(digest);
    expect(await resolve(`${host}/team/tool:index`, ann)).toBe(indexDigest);
    expect(await resolve(`${host}/team/tool@${indexDigest}`, ann)).toBe(indexDigest);
    await expect(resolve(`${host}/team/tool:none`, ann)).rejects.toThrow(problem("not_found"));
    await expect(resolve(`${host}/team/tool@sha256:${"0".repeat(64)}`, ann)).rejects.toThrow(problem("not_found"));
    await expect(resolve(`${host}/team/tool`, wrong)).rejects.toThrow(problem("unauthorized"));
    await expect(resolve(`${host}/team/tool`)).rejects.toThrow(problem("unauthorized"));
  });

  test("is not contacted at a private address that nobody allowed, whatever its name", async () => {
    const port = host.split(":")[1];
    for (const name of [host, `localhost:${port}`]) {
      await expect(
        clientFor("10.0.0.0/8").checkCredential({ host: name, scheme: "https" }, ann, signal),
      ).rejects.toThrow(problem("refused_address"));
    }
    await clientFor(`localhost:${port}`).checkCredential({ host: `localhost:${port}`, scheme: "http" }, ann, signal);
  });
});

describe.runIf(hasRegistry)("a registry with a token service", () => {
  let host: string;
  let tokenHost: string;
  let digest: string;
  const asked: URL[] = [];

  beforeAll(async () => {
    const { path: folder, remove: removeFolder } = await createTempFolder();
    cleanUps.push(removeFolder);
    const [key, certificate] = [join(folder, "key.pem"), join(folder, "certificate.pem")];
    const subject = ["-subj", "/CN=tokens", "-days", "2"];
    await promisify(execFile)("openssl", [
      ...["req", "-x509", "-newkey", "rsa:2048", "-nodes", "-keyout", key, "-out", certificate],
      ...subject,
    ]);
    const privateKey = await readFile(key);
    const x5c = [new X509Certificate(await readFile(certificate)).raw.toString("base64")];

    function issueToken(scope: string | null): string {
      const [, type, name, actions] = /^(\w+):(.+):([\w,]+)$/.exec(scope ?? "") ?? [];
      const now = Math.floor(Date.now() / 1000);
      const access = type === undefined ? [] : [{ type, name, actions: actions?.split(",") }];
      const claims = { iss: "tokens", sub: "ann", aud: "registry", nbf: now - 5, iat: now, exp: now + 60, access };
      const parts = [
        { typ: "JWT", alg: "RS256", x5c },
        { ...claims, jti: randomUUID() },
      ];
      const text = parts.map((part) => Buffer.from(JSON.stringify(part)).toString("base64url")).join(".");
      return `${text}.${sign("RSA-SHA256", Buffer.from(text), privateKey).toString("base64url")}`;
    }

    tokenHost = await startServer((request, response) => {
      const url = new URL(request.url ?? "", `http://${tokenHost}`);
      asked.push(url);
      if (request.headers.authorization !== basic(ann)) return response.writeHead(401).end();
      return response.end(JSON.stringify({ token: issueToken(url.searchParams.get("scope")) }));
    });

    host = `127.0.0.1:${await findFreePort()}`;
    const config = {
      version: "0.1",
      log: { level: "warn" },
      storage: { filesystem: { rootdirectory: join(folder, "data") } },
      http: { addr: host, secret: randomUUID() },
      auth: {
        token: {
          realm: `http://${tokenHost}/token`,
          service: "registry",
          issuer: "tokens",
          rootcertbundle: certificate,
        },
      },
    };
    await writeFile(join(folder, "config.yml"), JSON.stringify(config));
    const server = startProcess("docker-registry", ["serve", join(folder, "config.yml")], {
      env: { PATH: process.env.PATH },
    });
    cleanUps.unshift(() => server.stop());
    const answers = () => fetch(`http://${host}/v2/`).catch(() => undefined);
    while ((await answers())?.status !== 401) {
      if (server.child.exitCode !== null) throw new Error(`the registry did not start: ${server.output()}`);
      await delay(50);
    }
    ({ digest } = await pushEmptyImages(host, "team/tool", `Bearer ${issueToken("repository:team/tool:pull,push")}`));
  });

  test("takes a token that was got with the right credential", async () => {
    const client = clientFor(host, tokenHost);
    await client.checkCredential({ host, scheme: "http" }, ann, signal);
    await expect(client.checkCredential({ host, scheme: "http" }, wrong, signal)).rejects.toThrow(
      problem("unauthorized"),
    );
    const reference = referenceOf(`${host}/team/tool`);
    expect(await resolveDigest(client, { host, scheme: undefined }, reference, ann)).toBe(digest);
    expect(asked.at(-1)?.searchParams.get("scope")).toBe("repository:team/tool:pull");
    expect(asked.at(-1)?.searchParams.get("service")).toBe("registry");
    await expect(resolveDigest(client, { host, scheme: "http" }, reference, undefined)).rejects.toThrow(
      problem("unauthorized"),
    );
  });

  test("gets nothing sent to a token service that nobody allowed", async () => {
    const before = asked.length;
    await expect(clientFor(host).checkCredential({ host, scheme: "http" }, ann, signal)).rejects.toThrow(
      problem("refused_address"),
    );
    expect(asked).toHaveLength(before);
  });
});

async function startServer(listener: RequestListener): Promise<string> {
  const server = createServer(listener).listen(0, "127.0.0.1");
  await once(server, "listening");
  cleanUps.push(async () => {
    server.closeAllConnections();
    server.close();
  });
  const address = server.address();
  if (address === null || typeof address === "string") throw new Error("no port was given");
  return `127.0.0.1:${address.port}`;
}

describe("a hostile or broken registry", () => {
  const image = (host: string) => referenceOf(`${host}/team/tool`);

  test("doesn't get the credential sent to where it redirects", async () => {
    const seen: IncomingMessage[] = [];
    const other = await startServer((request, response) => {
      seen.push(request);
      response.writeHead(401, { "www-authenticate": 'Basic realm="other"' }).end();
    });
    const host = await startServer((request, response) => {
      if (request.headers.authorization === undefined) {
        return response.writeHead(401, { "www-authenticate": 'Basic realm="registry"' }).end();
      }
      return response.writeHead(307, { location: `http://${other}${request.url}` }).end();
    });
    await expect(resolveDigest(clientFor(host, other), { host, scheme: "http" }, image(host), ann)).rejects.toThrow(
      problem("unauthorized"),
    );
    expect(seen.map(({ headers }) => headers.authorization)).toEqual([undefined]);
  });

  test("can't redirect into a network that nobody allowed", async () => {
    let reached = false;
    const inside = await startServer((_request, response) => {
      reached = true;
      response.end();
    });
    const host = await startServer((request, response) =>
      response.writeHead(302, { location: `http://${inside}${request.url}` }).end(),
    );
    await expect(resolveDigest(clientFor(host), { host, scheme: "http" }, image(host), undefined)).rejects.toThrow(
      problem("refused_address"),
    );
    expect(reached).toBe(false);
  });

  test("can't have a name that leads into a network that nobody allowed", async () => {
    const resolver = await startDns("127.0.0.1");
    let connections = 0;
    const inside = createTcpServer((socket) => {
      connections += 1;
      socket.destroy();
    }).listen(0, "127.0.0.1");
    await once(inside, "listening");
    cleanUps.push(async () => inside.close());
    const address = inside.address();
    const host = `registry.example:${typeof address === "object" && address?.port}`;
    const check = (...allow: string[]) => {
      const allowed = readAllowedHosts(allow);
      const client = createRegistryClient(
        createGuardedRequest(allowed, () => resolver),
        allowed,
      );
      return client.checkCredential({ host, scheme: "https" }, ann, signal);
    };
    await expect(check()).rejects.toThrow(problem("refused_address"));
    await expect(check("10.0.0.0/8")).rejects.toThrow(problem("refused_address"));
    expect(connections).toBe(0);
    await expect(check("127.0.0.0/8")).rejects.toThrow(problem("unreachable"));
    expect(connections).toBe(1);
  });

  test("is looked up at the name servers that there are when it is asked", async () => {
    const [before, after] = [await startDns("10.0.0.1"), await startDns("127.0.0.1")];
    let resolver = before;
    const allowed = readAllowedHosts(["127.0.0.0/8"]);
    const client = createRegistryClient(
      createGuardedRequest(allowed, () => resolver),
      allowed,
    );
    const host = `registry.example:${await findFreePort()}`;
    const check = () => client.checkCredential({ host, scheme: "https" }, ann, signal);
    await expect(check()).rejects.toThrow(problem("refused_address"));
    resolver = after;
    await expect(check()).rejects.toThrow(problem("unreachable"));
  });

  test("is unreachable when it fails, redirects in circles, sends too much or isn't there", async () => {
    const failing = await startServer((_request, response) => response.writeHead(503).end());
    const circling = await startServer((request, response) => response.writeHead(302, { location: request.url }).end());
    const flooding = await startServer((_request, response) => response.end(Buffer.alloc(5 * 1024 * 1024)));
    const gone = `127.0.0.1:${await findFreePort()}`;
    for (const host of [failing, circling, flooding, gone]) {
      await expect(clientFor(host).checkCredential({ host, scheme: undefined }, ann, signal)).rejects.toThrow(
        problem("unreachable"),
      );
    }
  });

  /** Resolves `latest` at a registry that gives out these: `manifests/<tag or digest>` and `blobs/<digest>`. */
  async function resolveAt(answers: Record<string, string>, reference = "latest") {
    const asked: string[] = [];
    const host = await startServer((request, response) => {
      const path = request.url?.replace("/v2/team/tool/", "") ?? "";
      asked.push(path);
      const answer = answers[path];
      return answer === undefined ? response.writeHead(404).end() : response.end(answer);
    });
    const suffix = reference.includes(":") ? `@${reference}` : `:${reference}`;
    const text = `${host}/team/tool${suffix}`;
    const digest = await resolveDigest(clientFor(host), { host, scheme: "http" }, referenceOf(text), undefined).catch(
      (error: unknown) => error,
    );
    return { digest, asked };
  }
  const own = emptyImage();
  const theirs = emptyImage("of another tenant");
  const blob = (text: string) => ({ [`blobs/${digestOf(text)}`]: text });
  const byDigest = (text: string) => ({ [`manifests/${digestOf(text)}`]: text });

  test("must have the config that its manifest names", async () => {
    const latest = { "manifests/latest": theirs.manifest };
    expect((await resolveAt({ ...latest, ...blob(theirs.config) })).digest).toBe(digestOf(theirs.manifest));
    expect((await resolveAt(latest)).digest).toEqual(problem("not_found"));
    const forged = { [`blobs/${digestOf(theirs.config)}`]: own.config };
    expect((await resolveAt({ ...latest, ...forged })).digest).toEqual(problem("not_found"));
  });

  test("must have the manifest that its digest names", async () => {
    const answers = { [`manifests/${digestOf(theirs.manifest)}`]: own.manifest, ...blob(own.config) };
    expect((await resolveAt(answers, digestOf(theirs.manifest))).digest).toEqual(problem("not_found"));
  });

  test("must have the config of the image that an index has for this architecture, and of no other", async () => {
    const architecture = process.arch === "x64" ? "amd64" : process.arch;
    const lesser = process.arch === "x64" ? "386" : "arm";
    const both = indexOf({ ...theirs, architecture: lesser }, { ...own, architecture });
    const answers = { "manifests/latest": both, ...byDigest(own.manifest), ...blob(own.config) };
    const { digest, asked } = await resolveAt(answers);
    expect(digest).toBe(digestOf(both));
    expect(asked).toEqual(
      ["latest", digestOf(own.manifest)].map((each) => `manifests/${each}`).concat(`blobs/${digestOf(own.config)}`),
    );

    const chosenFirst = indexOf({ ...theirs, architecture }, { ...own, architecture: lesser });
    const without = { ...answers, ...byDigest(theirs.manifest), "manifests/latest": chosenFirst };
    expect((await resolveAt(without)).digest).toEqual(problem("not_found"));
    expect((await resolveAt({ ...without, ...blob(theirs.config) })).digest).toBe(digestOf(chosenFirst));

    const forged = { ...without, ...blob(theirs.config), [`manifests/${digestOf(theirs.manifest)}`]: own.manifest };
    expect((await resolveAt(forged)).digest).toEqual(problem("not_found"));
    const none = indexOf({ ...own, architecture: "s390x" });
    expect((await resolveAt({ ...answers, "manifests/latest": none })).digest).toEqual(problem("not_found"));
    const nested = indexOf({ manifest: both, architecture });
    expect((await resolveAt({ ...answers, ...byDigest(both), "manifests/latest": nested })).digest).toEqual(
      problem("not_found"),
    );
  });

  test("has no image in a manifest of schema 1, or in what is no manifest", async () => {
    for (const manifest of ['{"schemaVersion":1,"fsLayers":[],"history":[]}', "<html>"]) {
      expect((await resolveAt({ "manifests/latest": manifest })).digest).toEqual(problem("not_found"));
    }
  });

  test("may keep its blobs elsewhere, without getting the credential sent there", async () => {
    const seen: (string | undefined)[] = [];
    const store = await startServer((request, response) => {
      seen.push(request.headers.authorization);
      response.end(own.config);
    });
    const host = await startServer((request, response) => {
      if (request.headers.authorization !== basic(ann)) {
        return response.writeHead(401, { "www-authenticate": 'Basic realm="registry"' }).end();
      }
      if (request.url?.includes("/manifests/")) return response.end(own.manifest);
      return response.writeHead(307, { location: `http://${store}/blob` }).end();
    });
    const resolve = (...allow: string[]) =>
      resolveDigest(clientFor(...allow), { host, scheme: "http" }, image(host), ann);
    expect(await resolve(host, store)).toBe(digestOf(own.manifest));
    expect(seen).toEqual([undefined]);
    await expect(resolve(host)).rejects.toThrow(problem("refused_address"));
    expect(seen).toHaveLength(1);
  });

  test("may redirect each of many blobs, all of them over few connections", async () => {
    const store = await startServer((_request, response) => response.end("a layer"));
    const host = await startServer((_request, response) =>
      response.writeHead(307, { location: `http://${store}/blob` }).end("moved"),
    );
    const source = clientFor(host, store).openBlobs({ host, scheme: "http" }, "team/tool", undefined);
    try {
      const limited = AbortSignal.timeout(5_000);
      for (let each = 0; each < 20; each++) {
        const opened = await source.open(digestOf("a layer"), 0, limited);
        expect((await readBody(opened)).toString()).toBe("a layer");
      }
    } finally {
      source.close();
    }
  });

  test("must have a config of the size that its image's manifest says", async () => {
    const { config, ...rest } = JSON.parse(own.manifest);
    const manifest = JSON.stringify({ ...rest, config: { ...config, size: config.size + 1 } });
    expect((await resolveAt({ "manifests/latest": manifest, ...blob(own.config) })).digest).toEqual(
      problem("not_found"),
    );
  });

  test("must have as many layers as the config of its image says", async () => {
    const manifest = JSON.stringify({ ...JSON.parse(own.manifest), layers: [{ digest: digestOf("layer"), size: 5 }] });
    expect((await resolveAt({ "manifests/latest": manifest, ...blob(own.config) })).digest).toEqual(
      problem("not_found"),
    );
  });

  test("that is none has nothing at /v2/", async () => {
    const host = await startServer((_request, response) => response.writeHead(404).end());
    await expect(clientFor(host).checkCredential({ host, scheme: "http" }, ann, signal)).rejects.toThrow(
      problem("not_found"),
    );
  });
});

describe("a registry that has been asked before", () => {
  const layer = "a layer";
  const config = JSON.stringify({
    architecture: "amd64",
    os: "linux",
    rootfs: { type: "layers", diff_ids: [digestOf("unpacked")] },
  });
  const manifest = JSON.stringify({
    schemaVersion: 2,
    mediaType: manifestType,
    config: { digest: digestOf(config), size: config.length },
    layers: [{ digest: digestOf(layer), size: layer.length }],
  });

  /** One that counts what it is asked for, as `GET manifests/latest`. */
  async function openCounted(
    answer: (
      path: string,
      request: IncomingMessage,
    ) => { status?: number; headers?: object; body?: string } | undefined,
  ) {
    const asked: string[] = [];
    const host = await startServer((request, response) => {
      const path = request.url?.replace("/v2/team/tool/", "") ?? "";
      asked.push(`${request.method} ${path}`);
      const { status = 200, headers = {}, body = "" } = answer(path, request) ?? { status: 404 };
      response.writeHead(status, { ...headers, "content-length": body.length });
      response.end(request.method === "HEAD" ? undefined : body);
    });
    const client = clientFor(host);
    const reference = referenceOf(`${host}/team/tool`);
    return {
      host,
      client,
      asked,
      resolve: (choose: string[] = []) =>
        client.resolveImage({ host, scheme: "http" }, reference, undefined, signal, async () => choose),
      /** What it was asked since the last time, in alphabetical order. */
      takeAsked: () => asked.splice(0).sort(),
    };
  }
  const contents: Record<string, string> = {
    "manifests/latest": manifest,
    [`manifests/${digestOf(manifest)}`]: manifest,
    [`blobs/${digestOf(config)}`]: config,
    [`blobs/${digestOf(layer)}`]: layer,
  };
  const digestHeader = { "docker-content-digest": digestOf(manifest) };
  const serve = (path: string) => {
    const body = contents[path];
    return body === undefined ? undefined : { body, ...(path.startsWith("manifests/") && { headers: digestHeader }) };
  };

  test("gives out a manifest and a config once, and is only asked for them afterwards", async () => {
    const { resolve, takeAsked } = await openCounted(serve);
    const first = await resolve();
    expect(first).toMatchObject({
      digest: digestOf(manifest),
      manifestDigest: digestOf(manifest),
      mediaType: manifestType,
      layers: [{ digest: digestOf(layer), size: layer.length, diffId: digestOf("unpacked") }],
    });
    expect(takeAsked()).toEqual([`GET blobs/${digestOf(config)}`, "GET manifests/latest"]);
    expect(await resolve([digestOf(layer)])).toEqual(first);
    expect(takeAsked()).toEqual([
      `HEAD blobs/${digestOf(config)}`,
      `HEAD blobs/${digestOf(layer)}`,
      "HEAD manifests/latest",
    ]);
  });

  test("is asked for a manifest that it doesn't name, or names as another", async () => {
    let header: object = {};
    const { resolve, takeAsked } = await openCounted((path) => ({ ...serve(path), headers: header }));
    await resolve();
    for (header of [{}, { "docker-content-digest": digestOf("another") }]) {
      takeAsked();
      expect((await resolve()).digest).toBe(digestOf(manifest));
      expect(takeAsked()).toContain("GET manifests/latest");
    }
  });

  test.each([
    [401, "unauthorized"],
    [403, "unauthorized"],
    [404, "not_found"],
    [429, "rate_limited"],
  ])("may refuse with %i what it gave out before", async (status, name) => {
    let refused = "";
    const { resolve } = await openCounted((path) => (path === refused ? { status } : serve(path)));
    await resolve();
    for (refused of ["manifests/latest", `blobs/${digestOf(config)}`, `blobs/${digestOf(layer)}`]) {
      await expect(resolve([digestOf(layer)])).rejects.toThrow(problem(name));
    }
  });

  test("may know nothing of HEAD, or redirect it to where only GET is taken", async () => {
    const store = await startServer((request, response) =>
      response.writeHead(request.method === "GET" ? 206 : 403).end(),
    );
    const { host, takeAsked } = await openCounted((_path, { method }) => (method === "GET" ? {} : { status: 405 }));
    const redirecting = await openCounted(() => ({ status: 307, headers: { location: `http://${store}/blob` } }));
    const check = (at: string, ...allow: string[]) =>
      clientFor(at, ...allow).checkBlobs(
        { host: at, scheme: "http" },
        "team/tool",
        [digestOf(layer)],
        undefined,
        signal,
      );
    await check(host);
    expect(takeAsked()).toEqual([`GET blobs/${digestOf(layer)}`, `HEAD blobs/${digestOf(layer)}`]);
    await check(redirecting.host, store);
    await expect(check(redirecting.host)).rejects.toThrow(problem("refused_address"));
  });

  test("gives one token for all blobs that it is asked about together", async () => {
    const { host, client, takeAsked } = await openCounted((path, { headers }) => {
      if (path === "/token") return { body: '{"token":"given"}' };
      if (headers.authorization === "Bearer given") return {};
      return { status: 401, headers: { "www-authenticate": `Bearer realm="http://${headers.host}/token"` } };
    });
    const digests = ["1", "2", "3"].map(digestOf);
    await client.checkBlobs({ host, scheme: "http" }, "team/tool", digests, undefined, signal);
    const [first, ...rest] = digests.map((each) => `HEAD blobs/${each}`);
    expect(takeAsked()).toEqual(["GET /token", first, first, ...rest].sort());
  });

  test("says how long it takes no more requests", async () => {
    for (const [header, seconds] of [
      ["120", 120],
      [new Date(Date.now() + 3_600_000).toUTCString(), expect.closeTo(3_600, -2)],
      ["soon", undefined],
      // Six hours at most.
      ["Fri, 31 Dec 9999 23:59:59 GMT", 21_600],
      ["999999999999", 21_600],
    ] as const) {
      const { resolve } = await openCounted(() => ({ status: 429, headers: { "retry-after": header } }));
      await expect(resolve()).rejects.toThrow(
        expect.objectContaining({
          problem: "rate_limited",
          retryAfterSeconds: seconds,
          message: expect.stringContaining("429"),
        }),
      );
    }
  });

  test("doesn't vouch for another one", async () => {
    const { resolve } = await openCounted(serve);
    await resolve();
    const liar = await openCounted((path) =>
      path.startsWith("manifests/") ? { headers: digestHeader, body: manifest } : undefined,
    );
    await expect(liar.resolve()).rejects.toThrow(problem("not_found"));
  });

  test("gives out a blob from any byte on", async () => {
    const { host, client } = await openCounted((path, { headers }) => {
      const from = Number(/\d+/.exec(headers.range ?? "")?.[0] ?? 0);
      return { ...(from > 0 && { status: 206 }), body: contents[path]?.slice(from) ?? "" };
    });
    const blobs = client.openBlobs({ host, scheme: "http" }, "team/tool", undefined);
    const whole = await blobs.open(digestOf(layer), 0, signal);
    expect([whole.status, (await readBody(whole)).toString()]).toEqual([200, layer]);
    const rest = await blobs.open(digestOf(layer), 2, signal);
    expect([rest.status, (await readBody(rest)).toString()]).toEqual([206, layer.slice(2)]);
    blobs.close();
  });
});

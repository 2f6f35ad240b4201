import { createHash } from "node:crypto";
import { once } from "node:events";
import { createServer, type IncomingMessage, type Server, type ServerResponse } from "node:http";
import { gzipSync } from "node:zlib";
import { buildImage, openTestEngine, probeEngine } from "@sandgate/test-support/images";
import { probeRegistry, startRegistry, type TestRegistry } from "@sandgate/test-support/registry";
import { requireServer } from "@sandgate/test-support/require";
import { until } from "@sandgate/test-support/until";
import { afterAll, beforeAll, describe, expect, test } from "vitest";
import { expectStatus, uniqueName } from "./client.ts";
import { openTarget, requireSettings, type Target, type Tenant } from "./target.ts";

const isAvailable =
  (await requireSettings()) &&
  (await requireServer("docker", probeEngine)) &&
  (await requireServer("registry", probeRegistry));

const credential = { username: "puller", password: "pull-secret-1" };
const manifestType = "application/vnd.docker.distribution.manifest.v2+json";

/** Ends at once on SIGTERM. */
const idle = ["sh", "-c", "trap 'exit 0' TERM; sleep 600 & wait"];

/** An image as a registry has it. */
interface Contents {
  manifest: Buffer;
  config: { digest: string; content: Buffer };
  layers: { digest: string; content: Buffer }[];
}

/** A registry that a tenant wrote: it counts what it is asked for, and may answer as it likes. */
interface OwnRegistry {
  host: string;
  /** `GET blobs/sha256:…`, in the order in which they came. */
  asked: string[];
  close(): void;
}

function digestOf(content: Buffer): string {
  return `sha256:${createHash("sha256").update(content).digest("hex")}`;
}

async function listen(server: Server, address = "127.0.0.1"): Promise<string> {
  server.listen(0, address);
  await once(server, "listening");
  const place = server.address();
  return `${address}:${typeof place === "object" && place?.port}`;
}

/** @param answer true once it has answered; otherwise the image's contents are given out, of whatever repository */
async function openRegistry(
  image: Contents,
  answer: (path: string, response: ServerResponse, request: IncomingMessage) => boolean = () => false,
): Promise<OwnRegistry> {
  const asked: string[] = [];
  const blobs = new Map([image.config, ...image.layers].map(({ digest, content }) => [`blobs/${digest}`, content]));
  const server = createServer((request, response) => {
    const path = /^\/v2\/.*?\/((?:blobs|manifests)\/.*)$/.exec(request.url ?? "")?.[1] ?? "";
    asked.push(`${request.method} ${path}`);
    if (answer(path, response, request)) return;
    const content = path.startsWith("manifests/") ? image.manifest : blobs.get(path);
    if (!content) return response.writeHead(404).end();
    response.writeHead(200, {
      "content-length": content.length,
      ...(path.startsWith("manifests/") && {
        "content-type": manifestType,
        "docker-content-digest": digestOf(image.manifest),
      }),
    });
    response.end(request.method === "HEAD" ? undefined : content);
  });
  const host = await listen(server);
  return {
    host,
    asked,
    close() {
      server.closeAllConnections();
      server.close();
    },
  };
}

describe.runIf(isAvailable)("images are pulled", { timeout: 300_000 }, () => {
  const engine = openTestEngine();
  const registries: { close(): void }[] = [];
  const contents: Contents[] = [];
  let registry: TestRegistry;
  let target: Target;
  let owner: Tenant;
  let stranger: Tenant;
  let secret: Contents;
  let secretReference: string;
  /** A sandbox whose registry redirects its layers, and how often it has been asked where they are then. */
  let redirected: { sandboxId: string; askedInside: number };

  const as = (tenant: Tenant) => ({ token: tenant.token, workspace: tenant.workspace });

  /** Builds an image and pushes it to the private registry; the engine keeps none of it. */
  async function publish(command: string[], files: Record<string, string> = {}) {
    const repository = `team/${uniqueName("app")}`;
    const image = await buildImage(engine, { command, files });
    const digest = await registry.push(engine, image.id, repository, "v1", credential);
    await image.remove();
    const authorization = `Basic ${Buffer.from(`${credential.username}:${credential.password}`).toString("base64")}`;
    const fetchContent = async (path: string) => {
      const headers = { authorization, accept: manifestType };
      const response = await fetch(`http://${registry.host}/v2/${repository}/${path}`, { headers });
      return Buffer.from(await response.arrayBuffer());
    };
    const manifest = await fetchContent(`manifests/${digest}`);
    const { config, layers } = JSON.parse(manifest.toString());
    const fetchBlob = async (blob: { digest: string }) => ({
      digest: blob.digest,
      content: await fetchContent(`blobs/${blob.digest}`),
    });
    const published: Contents = {
      manifest,
      config: await fetchBlob(config),
      layers: await Promise.all(layers.map(fetchBlob)),
    };
    contents.push(published);
    return { contents: published, reference: `${registry.host}/${repository}:v1` };
  }

  async function open(...parameters: Parameters<typeof openRegistry>): Promise<OwnRegistry> {
    const opened = await openRegistry(...parameters);
    registries.push(opened);
    return opened;
  }

  async function createImage(tenant: Tenant, image: string, body: object = {}): Promise<string> {
    const answer = await target.post("/sandbox-images", { name: "image", memory_mb: 256, image, ...body }, as(tenant));
    return expectStatus(answer, 201).id;
  }

  async function provision(tenant: Tenant, imageId: string): Promise<string> {
    return expectStatus(await target.post("/sandboxes/provision", { image_id: imageId }, as(tenant)), 201).id;
  }

  /** The record of a sandbox once it is ready or has failed. It is stopped then. */
  async function settle(tenant: Tenant, id: string) {
    await target.post("/sandboxes/wait", { sandbox_id: id, timeout_seconds: 240 }, as(tenant));
    const record = expectStatus(await target.get(`/sandboxes/${id}`, as(tenant)), 200);
    expectStatus(await target.delete(`/sandboxes/${id}`, as(tenant)), 204);
    return record;
  }

  const run = async (tenant: Tenant, image: string, body: object = {}) =>
    settle(tenant, await provision(tenant, await createImage(tenant, image, body)));

  beforeAll(async () => {
    registry = await startRegistry({ users: [credential] });
    target = await openTarget({ SANDGATE_REGISTRY_ALLOW: "127.0.0.1", SANDGATE_IMAGE_MAX_MB: "64" });
    [owner, stranger] = [await target.newTenant(), await target.newTenant()];
    ({ contents: secret, reference: secretReference } = await publish(["sh", "-c", `cat /secret; ${idle[2]}`], {
      "/secret": "for the owner's eyes\n",
    }));
    const answer = await target.post(
      "/registries",
      { name: uniqueName("r"), url: `http://${registry.host}`, ...credential },
      as(owner),
    );
    const sandbox = await run(owner, secretReference, { registry_id: expectStatus(answer, 201).id });
    expect([sandbox.state, sandbox.state_reason]).toEqual(["ready", null]);
    expect(sandbox.image).toBe(secretReference);
    expect(sandbox.image_digest).toBe(digestOf(secret.manifest));
    // Now, since it is tried again for 30 s.
    redirected = { sandboxId: "", askedInside: 0 };
    const inside = createServer((_request, response) => {
      redirected.askedInside += 1;
      response.end();
    });
    registries.push(inside);
    const address = await listen(inside, "127.0.0.2");
    const { contents: published } = await publish(idle);
    const redirecting = await open(published, (path, response) => {
      if (!published.layers.some(({ digest }) => path === `blobs/${digest}`)) return false;
      response.writeHead(307, { location: `http://${address}/layer` }).end();
      return true;
    });
    redirected.sandboxId = await provision(stranger, await createImage(stranger, `${redirecting.host}/team/app`));
  });
  afterAll(async () => {
    for (const each of registries) each.close();
    await target?.close();
    for (const { config } of contents) {
      await engine
        .getImage(config.digest)
        .remove({ force: true })
        .catch(() => undefined);
    }
    await registry?.stop();
  });

  test("with layers that the workspace can get itself, whatever the engine has", async () => {
    const layers = new Set(secret.layers.map(({ digest }) => `blobs/${digest}`));
    const thief = await open(secret, (path, response) => {
      if (!layers.has(path)) return false;
      response.writeHead(404).end();
      return true;
    });
    expect(await run(stranger, `${thief.host}/team/stolen`)).toMatchObject({
      state: "failed",
      state_reason: "image_not_found_in_registry",
    });
    expect(thief.asked.filter((each) => layers.has(each.replace("GET ", "")))).not.toEqual([]);
  });

  test("with the layers of their config, whatever the manifest names", async () => {
    const layer = gzipSync(Buffer.alloc(1024));
    const manifest = JSON.parse(secret.manifest.toString());
    const layers = manifest.layers.map((each: object) => ({ ...each, digest: digestOf(layer), size: layer.length }));
    const thief = await open({
      config: secret.config,
      manifest: Buffer.from(JSON.stringify({ ...manifest, layers })),
      layers: [{ digest: digestOf(layer), content: layer }],
    });
    expect(await run(stranger, `${thief.host}/team/stolen`)).toMatchObject({
      state: "failed",
      state_reason: "image_not_found_in_registry",
    });
  });

  test("saying how much has come while a slow registry gives a layer out, and the whole at the end", async () => {
    const { contents } = await publish(idle);
    const [layer] = contents.layers;
    if (!layer) throw new Error("the image has a layer");
    const half = Math.floor(layer.content.length / 2);
    const rest = Promise.withResolvers<void>();
    const slow = await open(contents, (path, response, { method }) => {
      if (method !== "GET" || path !== `blobs/${layer.digest}`) return false;
      response.writeHead(200, { "content-length": layer.content.length });
      response.write(layer.content.subarray(0, half));
      void rest.promise.then(() => response.end(layer.content.subarray(half)));
      return true;
    });
    const id = await provision(stranger, await createImage(stranger, `${slow.host}/team/app`));
    const read = async () => expectStatus(await target.get(`/sandboxes/${id}`, as(stranger)), 200);
    const total_bytes = contents.layers.reduce((sum, { content }) => sum + content.length, 0);
    const downloaded_bytes = total_bytes - layer.content.length + half;
    await until(async () => expect((await read()).pull).toEqual({ downloaded_bytes, total_bytes }));
    rest.resolve();
    let record = await read();
    let { pull } = record;
    while (record.state === "provisioning") {
      pull = record.pull;
      record = await read();
    }
    expect(pull).toEqual({ downloaded_bytes: total_bytes, total_bytes });
    expect(record).toMatchObject({ state: "ready", pull: null });
    expectStatus(await target.delete(`/sandboxes/${id}`, as(stranger)), 204);
  });

  test("with the bytes that their digests are of", async () => {
    const { contents } = await publish(idle);
    const forged = await open(contents, (path, response) => {
      if (!contents.layers.some(({ digest }) => path === `blobs/${digest}`)) return false;
      response.end(secret.layers[0]?.content);
      return true;
    });
    expect(await run(stranger, `${forged.host}/team/app`)).toMatchObject({
      state: "failed",
      state_reason: "image_not_found_in_registry",
    });
  });

  test("up to a size, which is judged before anything is downloaded", async () => {
    const manifest = JSON.parse(secret.manifest.toString());
    const [first, ...others] = manifest.layers;
    const size = 65 * 1024 * 1024;
    const large = await open({
      ...secret,
      manifest: Buffer.from(JSON.stringify({ ...manifest, layers: [{ ...first, size }, ...others] })),
    });
    const record = await run(stranger, `${large.host}/team/app`);
    expect([record.state, record.state_reason, record.message]).toEqual([
      "failed",
      "start_failed",
      expect.stringContaining("the limit is 64 MB"),
    ]);
    expect(large.asked.filter((each) => each.includes(first.digest))).toEqual([]);
  });

  test("once, and are only asked for again, by every workspace for itself", async () => {
    const { contents } = await publish(idle);
    const shared = await open(contents);
    const blobs = [contents.config, ...contents.layers].map(({ digest }) => `blobs/${digest}`);
    const runAs = async (tenant: Tenant) => {
      shared.asked.length = 0;
      expect(await run(tenant, `${shared.host}/team/app`)).toMatchObject({ state: "ready" });
      return shared.asked.toSorted();
    };
    expect(await runAs(owner)).toEqual(["GET manifests/latest", ...blobs.map((blob) => `GET ${blob}`)].toSorted());
    expect(await runAs(stranger)).toEqual(["HEAD manifests/latest", ...blobs.map((blob) => `HEAD ${blob}`)].toSorted());
  });

  test("by two workspaces at once", async () => {
    const { contents } = await publish(idle);
    const shared = await open(contents);
    const records = await Promise.all(
      [owner, owner, stranger, stranger].map((tenant) => run(tenant, `${shared.host}/team/app`)),
    );
    expect(records.map(({ state }) => state)).toEqual(["ready", "ready", "ready", "ready"]);
    // Once for each workspace, and no more.
    const blob = `GET blobs/${contents.layers[0]?.digest}`;
    expect(shared.asked.filter((each) => each === blob).length).toBeLessThanOrEqual(2);
  });

  test("again when the engine has lost them", async () => {
    const { contents } = await publish(idle);
    const shared = await open(contents);
    expect(await run(owner, `${shared.host}/team/app`)).toMatchObject({ state: "ready" });
    const { digest } = contents.config;
    // A container that has ended keeps its image's layers.
    const users = () => engine.listContainers({ all: true, filters: { ancestor: [digest] } });
    await expect.poll(async () => (await users()).length).toBe(0);
    await engine.getImage(digest).remove({ force: true });
    shared.asked.length = 0;
    expect(await run(owner, `${shared.host}/team/app`)).toMatchObject({ state: "ready" });
    expect(shared.asked).toContain(`GET blobs/${contents.layers[0]?.digest}`);
  });

  test("while another registry sends hardly anything", async () => {
    const layers = Array.from({ length: 6 }, (_, number) => ({
      digest: digestOf(Buffer.from(`${number}`)),
      size: 1_000_000,
    }));
    const config = Buffer.from(
      JSON.stringify({ architecture: "amd64", os: "linux", rootfs: { diff_ids: layers.map(({ digest }) => digest) } }),
    );
    const manifest = Buffer.from(
      JSON.stringify({
        schemaVersion: 2,
        mediaType: manifestType,
        config: { digest: digestOf(config), size: config.length },
        layers,
      }),
    );
    const trickling = await open(
      { manifest, config: { digest: digestOf(config), content: config }, layers: [] },
      (path, response) => {
        if (!layers.some(({ digest }) => path === `blobs/${digest}`)) return false;
        response.writeHead(200, { "content-length": 1_000_000 });
        const timer = setInterval(() => response.write("x"), 200);
        response.on("close", () => clearInterval(timer));
        return true;
      },
    );
    const slow = await Promise.all(
      [1, 2, 3].map(async () => provision(stranger, await createImage(stranger, `${trickling.host}/team/app`))),
    );
    await expect.poll(() => trickling.asked.filter((each) => each.startsWith("GET blobs/")).length).toBeGreaterThan(3);
    const { contents } = await publish(idle);
    const quick = await open(contents);
    expect(await run(owner, `${quick.host}/team/app`)).toMatchObject({ state: "ready" });
    for (const id of slow) {
      expect(expectStatus(await target.get(`/sandboxes/${id}`, as(stranger)), 200).state).toBe("provisioning");
      expectStatus(await target.delete(`/sandboxes/${id}`, as(stranger)), 204);
    }
  });

  test("later, when the registry says so", async () => {
    const busy = await open(secret, (_path, response) => {
      response.writeHead(429, { "retry-after": "3600" }).end();
      return true;
    });
    const record = await run(stranger, `${busy.host}/team/app`);
    expect([record.state, record.state_reason, record.message]).toEqual([
      "failed",
      "registry_unreachable",
      expect.stringMatching(/takes no more requests until \d{4}-\d\d-\d\dT.*429/),
    ]);
    expect(busy.asked).toHaveLength(1);
  });

  test("from no address that nobody allowed", async () => {
    expect(await settle(stranger, redirected.sandboxId)).toMatchObject({
      state: "failed",
      state_reason: "registry_unreachable",
    });
    expect(redirected.askedInside).toBe(0);
  });
});

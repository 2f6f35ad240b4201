import { execFileSync } from "node:child_process";
import { createHash, randomBytes } from "node:crypto";
import { mkdir, mkdtemp, readdir, rm, stat, truncate, writeFile } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { addAbortSignal, Readable } from "node:stream";
import { gzipSync } from "node:zlib";
import { DomainError } from "@sandgate/kit/base/domain-error";
import { createMessage } from "@sandgate/kit/rpc/messages";
import {
  type AuthorizePullResponse,
  AuthorizePullResponseSchema,
  PullLayerSchema,
} from "@sandgate/proto/imageregistry/v1/image_registry";
import { createTempFolder } from "@sandgate/test-support/temp-folder";
import { afterAll, beforeAll, expect, test, vi } from "vitest";
import type { PullDestination } from "./engine-pulls.ts";
import { createImagePuller } from "./image-puller.ts";
import type { DownloadProgress } from "./pull-authorization.ts";
import { createPullEndpoint } from "./pull-endpoint.ts";

const content = Buffer.from("a layer without packing".padEnd(512));
const digestOf = (bytes: Buffer) => `sha256:${createHash("sha256").update(bytes).digest("hex")}`;
const digest = digestOf(content);
const manifestDigest = `sha256:${"a".repeat(64)}`;
const { signal } = new AbortController();
const order = { workspaceId: "w1", registryId: "", reference: "ghcr.io/team/tool:1" };
const endpoint = createPullEndpoint(0);
let folder: string;

beforeAll(async () => {
  folder = await mkdtemp(join(tmpdir(), "sandgate-puller-"));
});
afterAll(async () => {
  await endpoint.close();
  await rm(folder, { recursive: true });
});

function authorized(o: { sizes?: number[]; verified?: boolean; manifest?: string } = {}): AuthorizePullResponse {
  return createMessage(AuthorizePullResponseSchema, {
    digest: manifestDigest,
    pinnedReference: `ghcr.io/team/tool@${manifestDigest}`,
    registryHost: "ghcr.io",
    registryScheme: "",
    username: "",
    password: "",
    repository: "team/tool",
    manifest: Buffer.from(o.manifest ?? "{}"),
    manifestType: "application/vnd.oci.image.manifest.v1+json",
    configDigest: `sha256:${"c".repeat(64)}`,
    config: Buffer.from("{}"),
    layers: (o.sizes ?? [content.length]).map((size, index) =>
      createMessage(PullLayerSchema, {
        digest: index === 0 ? digest : `sha256:${String(index).padStart(64, "0")}`,
        sizeBytes: BigInt(size),
        diffId: digest,
        verified: o.verified ?? false,
      }),
    ),
  });
}

/** An image of one layer. */
function authorizedFor(blob: Buffer, unpacked = blob): AuthorizePullResponse {
  const [first] = authorized().layers;
  if (!first) throw new Error("no layer");
  const layer = { ...first, digest: digestOf(blob), sizeBytes: BigInt(blob.length), diffId: digestOf(unpacked) };
  return { ...authorized(), layers: [layer] };
}

/** The bytes of all files in a folder. What is removed meanwhile has none. */
async function bytesIn(path: string): Promise<number> {
  const isGone = (error: NodeJS.ErrnoException) => {
    if (error.code !== "ENOENT") throw error;
  };
  const entries = (await readdir(path, { withFileTypes: true }).catch(isGone)) ?? [];
  const sizes = await Promise.all(
    entries.map(async (each) => {
      const at = join(path, each.name);
      if (each.isDirectory()) return bytesIn(at);
      return each.isFile() ? ((await stat(at).catch(isGone))?.size ?? 0) : 0;
    }),
  );
  return sizes.reduce((sum, size) => sum + size, 0);
}

/** A registry that has the layer, and an engine that has the image once it has pulled it. */
function open(
  o: {
    answer?: AuthorizePullResponse;
    pull?: PullDestination["store"]["pull"];
    /** The runtime pulls by itself. */
    hasNoEngine?: boolean;
    blobs?: readonly Buffer[];
    measureAvailable?: () => Promise<number>;
    /** The folder of the test unless given. */
    folder?: string;
    /** Given out in pieces, each after this with its first byte. */
    onPiece?: (from: number, signal: AbortSignal) => Promise<void>;
  } = {},
) {
  const blobs = new Map((o.blobs ?? [content]).map((blob) => [digestOf(blob), blob]));
  const events: string[] = [];
  const images = new Set<string>();
  const destination: PullDestination = {
    endpoint,
    cache: {
      using: (_name, work) => work(),
      requestTrim() {
        events.push("trim");
      },
    },
    store: {
      find: async (reference) => (images.has(reference) ? { pinnedReference: "sha256:id", digest: "" } : undefined),
      async pull(request) {
        events.push("pull");
        await o.pull?.(request);
        images.add(request.pinnedReference);
      },
    },
  };
  const puller = createImagePuller({
    destination: o.hasNoEngine ? undefined : destination,
    authorizePull: async () => o.answer ?? authorized(),
    async recordVerified(host, layers) {
      events.push(`record ${layers.length} of ${host}`);
    },
    client: {
      openBlobs: () => ({
        async open(asked, _from, opened) {
          events.push(`download ${asked}`);
          return {
            status: 200,
            headers: {},
            body: addAbortSignal(
              opened,
              Readable.from(piecesOf(blobs.get(asked) ?? Buffer.alloc(0), async (from) => o.onPiece?.(from, opened))),
            ),
            url: new URL("https://ghcr.io/"),
          };
        },
        close() {},
      }),
    },
    folder: o.folder ?? folder,
    maxImageMb: 1,
    measureAvailable: o.measureAvailable ?? (async () => 1_000_000_000),
  });
  return {
    events,
    images,
    puller,
    pull: (workspaceId = order.workspaceId) => puller.pull({ ...order, workspaceId }, signal),
  };
}

async function* piecesOf(blob: Buffer, onPiece: (from: number) => Promise<void>) {
  for (let from = 0; from < blob.length; from += 64_000) {
    await onPiece(from);
    yield blob.subarray(from, from + 64_000);
  }
}

const refused = (reason: string, message = "") =>
  expect.objectContaining({ reason, message: expect.stringContaining(message) });

test("a layer is downloaded, verified and recorded before the engine pulls, and its file goes", async () => {
  const { events, images, pull } = open();
  expect(await pull()).toEqual({ pinnedReference: "sha256:id", digest: manifestDigest });
  expect(events).toEqual([`download ${digest}`, "record 1 of ghcr.io", "pull", "trim"]);
  expect([...images]).toEqual([`${await endpoint.listen()}/ghcr.io/team/tool@${manifestDigest}`]);
  const [own] = await readdir(folder);
  expect(await readdir(join(folder, own ?? ""))).toEqual([]);
});

test("what keeps layers from being stored is in the cause alone, and the next pull tries again", async () => {
  const { events, pull } = open({ folder: join(folder, "in-the-way") });
  await writeFile(join(folder, "in-the-way"), "");
  const failure = await pull().catch((error: unknown) => error);
  expect(failure).toMatchObject({ reason: "RUNTIME_UNAVAILABLE", message: "The image's layers can't be stored." });
  expect(failure).toHaveProperty("cause.message", expect.stringContaining("in-the-way"));
  expect(events).toEqual([]);
  await rm(join(folder, "in-the-way"));
  await pull();
  expect(events).toContain("pull");
  await rm(join(folder, "in-the-way"), { recursive: true });
});

test("tells how much of the layers has come, from nothing to all of them", async () => {
  const unpacked = randomBytes(100_000);
  const [large, small] = [gzipSync(unpacked), gzipSync(content)];
  const layersOf = (...given: Parameters<typeof authorizedFor>) => authorizedFor(...given).layers;
  const known = authorized({ verified: true }).layers;
  const answer = { ...authorized(), layers: [...known, ...layersOf(large, unpacked), ...layersOf(small, content)] };
  const { puller } = open({ answer, blobs: [content, large, small] });
  const seen: DownloadProgress[] = [];
  await puller.pull({ ...order, onProgress: (now) => seen.push(now) }, signal);
  const totalBytes = large.length + small.length;
  expect(seen.at(-1)).toEqual({ downloadedBytes: totalBytes, totalBytes });
  expect(seen.map((each) => each.downloadedBytes)).toEqual(
    seen.map((each) => each.downloadedBytes).toSorted((one, other) => one - other),
  );
  expect(seen.some(({ downloadedBytes }) => downloadedBytes > 0 && downloadedBytes < large.length)).toBe(true);
});

test("tells all who want an image how far the pull of the first is", async () => {
  const isFirstPiece = Promise.withResolvers<void>();
  const areBoth = Promise.withResolvers<void>();
  const heard: DownloadProgress[] = [];
  let heardBefore: DownloadProgress | undefined;
  const { puller } = open({
    async onPiece() {
      isFirstPiece.resolve();
      await areBoth.promise;
    },
    async pull() {
      heardBefore ??= heard.at(-1);
    },
  });
  const pulls = [puller.pull({ ...order, onProgress: () => {} }, signal)];
  await isFirstPiece.promise;
  pulls.push(puller.pull({ ...order, onProgress: (now) => heard.push(now) }, signal));
  areBoth.resolve();
  await Promise.all(pulls);
  expect(heardBefore).toEqual({ downloadedBytes: content.length, totalBytes: content.length });
});

test("an image that the engine has is downloaded all the same while a layer of it is not verified", async () => {
  const { events, pull } = open();
  await pull();
  events.length = 0;
  await pull();
  expect(events).toContain(`download ${digest}`);
});

test("an image whose layers are verified is pulled once", async () => {
  const { events, pull } = open({ answer: authorized({ verified: true }) });
  await pull();
  await pull();
  expect(events).toEqual(["pull", "trim"]);
});

test("what the engine asks for in vain is downloaded, and the pull made again", async () => {
  let asked = 0;
  const { events, pull } = open({
    answer: authorized({ verified: true }),
    async pull({ pinnedReference, username, password }) {
      const name = pinnedReference.slice(pinnedReference.indexOf("/") + 1, pinnedReference.lastIndexOf("@"));
      const authorization = `Basic ${Buffer.from(`${username}:${password}`).toString("base64")}`;
      const url = `http://${await endpoint.listen()}/v2/${name}/blobs/${digest}`;
      const response = await fetch(url, { headers: { authorization } });
      asked += 1;
      if (!response.ok) throw new DomainError("IMAGE_PULL_UNAUTHORIZED", "denied");
      expect(await response.text()).toBe(content.toString());
    },
  });
  await pull();
  expect(asked).toBe(2);
  expect(events).toEqual(["pull", `download ${digest}`, "record 1 of ghcr.io", "pull", "trim"]);
});

test.each([
  ["too many layers", authorized({ sizes: Array(128).fill(1) }), "PROVISIONING_FAILED", "128 layers"],
  ["layers too large together", authorized({ sizes: [600_000, 600_000] }), "PROVISIONING_FAILED", "the limit is 1 MB"],
  ["another content", authorized({ sizes: [content.length + 1] }), "IMAGE_NOT_FOUND_IN_REGISTRY", digest],
  ["nothing to verify its layers by", authorized({ manifest: "" }), "UPSTREAM_ERROR", "without the image's manifest"],
])("an image with %s is not pulled", async (_what, answer, reason, message) => {
  const { events, pull } = open({ answer });
  await expect(pull()).rejects.toThrow(refused(reason, message));
  expect(events).not.toContain("pull");
});

test("an image whose layers unpack to too much together is not pulled", async () => {
  const zeros = [1_500_000, 1_500_001, 1_500_002].map((bytes) => Buffer.alloc(bytes));
  const blobs = zeros.map((each) => gzipSync(each));
  const layers = blobs.map((blob, index) =>
    createMessage(PullLayerSchema, {
      digest: digestOf(blob),
      sizeBytes: BigInt(blob.length),
      diffId: digestOf(zeros[index] ?? Buffer.alloc(0)),
      verified: false,
    }),
  );
  const { events, pull } = open({ blobs, answer: { ...authorized(), layers } });
  await expect(pull()).rejects.toThrow(refused("PROVISIONING_FAILED", "more than 4 MB when unpacked"));
  expect(events).not.toContain("pull");
});

test.each([false, true])(
  "an image of too many empty files is refused, without an engine too: %s",
  async (hasNoEngine) => {
    // Each is the header of an empty file.
    const header = Buffer.alloc(512);
    header.write("a", 0);
    header.write(" ".repeat(8), 148);
    header.write(header.reduce((sum, byte) => sum + byte, 0).toString(8), 148);
    const archive = Buffer.concat([...Array(40).fill(header), Buffer.alloc(1024)]);
    const more = Buffer.concat([archive, Buffer.alloc(512)]);
    const answers = [archive, more].flatMap((each) => authorizedFor(gzipSync(each), each).layers);
    const blobs = [archive, more].map((each) => gzipSync(each));
    const one = open({ blobs, hasNoEngine, answer: { ...authorized(), layers: answers.slice(0, 1) } });
    await one.pull();
    const both = open({ blobs, hasNoEngine, answer: { ...authorized(), layers: answers } });
    await expect(both.pull()).rejects.toThrow(refused("PROVISIONING_FAILED", "more than 64 files and folders"));
    expect(both.events).not.toContain("pull");
  },
);

test.each([false, true])("an image with a sparse file is refused, without an engine too: %s", async (hasNoEngine) => {
  await using temp = await createTempFolder();
  await writeFile(join(temp.path, "holes"), "");
  await truncate(join(temp.path, "holes"), 2 ** 40);
  const archive = execFileSync("tar", ["-S", "--format=pax", "-C", temp.path, "-c", "holes"]);
  const blob = gzipSync(archive);
  const { events, pull } = open({ hasNoEngine, blobs: [blob], answer: authorizedFor(blob, archive) });
  await expect(pull()).rejects.toThrow(refused("PROVISIONING_FAILED", "The image's layers have a sparse file"));
  expect(events).toEqual([`download ${digestOf(blob)}`]);
});

test("the disk has room for what the engine makes of an image, besides the images that it is pulling", async () => {
  const zeros = Buffer.alloc(3_000_000);
  const blob = gzipSync(zeros);
  const held = Promise.withResolvers<void>();
  const { events, pull } = open({
    blobs: [blob],
    answer: authorizedFor(blob, zeros),
    // For two images.
    measureAvailable: async () => 7_000_000,
    pull: () => held.promise,
  });
  const pulls = () => events.filter((event) => event === "pull").length;
  const others = [pull("w1"), pull("w2")];
  await expect.poll(pulls).toBe(2);
  await expect(pull("w3")).rejects.toThrow(refused("RUNTIME_UNAVAILABLE", "disk space"));
  held.resolve();
  await Promise.all(others);
  await pull("w3");
  expect(pulls()).toBe(3);
});

test("downloads at once never take more of the disk than there is room", async () => {
  const layer = randomBytes(1_000_000);
  const totalBytes = 6_500_000;
  let leastFree = totalBytes;
  const measureAvailable = async () => totalBytes - (await bytesIn(folder));
  const { pull } = open({
    blobs: [layer],
    answer: authorizedFor(layer),
    measureAvailable,
    async onPiece() {
      leastFree = Math.min(leastFree, await measureAvailable());
    },
    // What the engine makes of it takes as much again, twice.
    async pull() {
      leastFree = Math.min(leastFree, (await measureAvailable()) - 2 * layer.length);
    },
  });
  const outcomes = await Promise.allSettled(Array.from({ length: 8 }, (_, index) => pull(`w${index}`)));
  const pulled = outcomes.filter(({ status }) => status === "fulfilled");
  for (const outcome of outcomes) {
    if (outcome.status === "rejected") expect(outcome.reason).toEqual(refused("RUNTIME_UNAVAILABLE", "disk space"));
  }
  expect(pulled.length).toBeLessThan(8);
  expect(leastFree).toBeGreaterThanOrEqual(0);
  await pull();
});

test("a slow pull ends when another needs its disk space, and the other has it", async () => {
  const layer = randomBytes(1_000_000);
  const stalled: (() => void)[] = [];
  let isSlow = true;
  const { pull } = open({
    blobs: [layer],
    answer: authorizedFor(layer),
    // With what the engine makes of it, an image takes 3 MB. There are less beside what two have before they stall.
    measureAvailable: async () => 6_100_000 - (await bytesIn(folder)),
    onPiece: async (from, opened) => {
      if (!isSlow || from < 800_000) return;
      const { promise, resolve } = Promise.withResolvers<void>();
      stalled.push(resolve);
      opened.addEventListener("abort", () => resolve());
      await promise;
    },
  });
  const slow = Promise.allSettled([pull("w1"), pull("w2")]);
  await expect.poll(() => stalled.length).toBe(2);
  isSlow = false;
  await expect(pull("w3")).rejects.toThrow(refused("RUNTIME_UNAVAILABLE", "disk space"));
  const later = performance.now() + 31_000;
  const clock = vi.spyOn(performance, "now").mockReturnValue(later);
  await pull("w3");
  clock.mockRestore();
  for (const resume of stalled) resume();
  const outcomes = await slow;
  expect(outcomes.map(({ status }) => status).sort()).toEqual(["fulfilled", "rejected"]);
  expect(outcomes.find(({ status }) => status === "rejected")).toMatchObject({
    reason: refused("RUNTIME_UNAVAILABLE", "too slowly"),
  });
});

test("an engine's error about the endpoint is not taken for the registry's", async () => {
  for (const [said, reason] of [
    ["IMAGE_PULL_UNAUTHORIZED", "RUNTIME_UNAVAILABLE"],
    ["REGISTRY_UNREACHABLE", "RUNTIME_UNAVAILABLE"],
    ["PROVISIONING_FAILED", "PROVISIONING_FAILED"],
  ] as const) {
    const { pull } = open({
      pull: async () => {
        throw new DomainError(said, "no");
      },
    });
    await expect(pull()).rejects.toThrow(refused(reason));
  }
});

test("a pull that failed because another one lacked a layer is made again, without another download", async () => {
  let pulls = 0;
  const { events, pull } = open({
    pull: async () => {
      pulls += 1;
      if (pulls < 3) throw new DomainError("IMAGE_PULL_UNAUTHORIZED", "denied");
    },
  });
  await pull();
  expect(events).toEqual([`download ${digest}`, "record 1 of ghcr.io", "pull", "pull", "pull", "trim"]);
});

test("what a process that has ended left is removed", async () => {
  const left = join(folder, "pull-999999999-left");
  await mkdir(left);
  await open().pull();
  expect(await readdir(folder)).not.toContain("pull-999999999-left");
});

test("without an engine, a layer is downloaded and verified all the same, and the image is the registry's", async () => {
  const { events, puller, pull } = open({ hasNoEngine: true });
  const reference = `ghcr.io/team/tool@${manifestDigest}`;
  const access = { registryHost: "ghcr.io", username: "", password: "", volumes: [] };
  expect(await pull()).toEqual({ pinnedReference: reference, digest: manifestDigest, access });
  expect(events).toEqual([`download ${digest}`, "record 1 of ghcr.io"]);
  expect(await puller.findAccess(order, signal)).toEqual(access);
  const verified = open({ hasNoEngine: true, answer: authorized({ verified: true }) });
  await verified.pull();
  expect(verified.events).toEqual([]);
});

test("a credential is asked for again when the container is made, as it may be gone by then", async () => {
  const answer = { ...authorized({ verified: true }), username: "alice", password: "hunter2" };
  const { puller, pull } = open({ hasNoEngine: true, answer });
  expect(await pull()).not.toHaveProperty("access");
  expect(await puller.findAccess(order, signal)).toMatchObject({ username: "alice", password: "hunter2" });
});

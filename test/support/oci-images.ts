import { execFile } from "node:child_process";
import { createHash } from "node:crypto";
import { readFile } from "node:fs/promises";
import { promisify } from "node:util";
import { gzipSync } from "node:zlib";
import { listApplets, tarEntry } from "./images.ts";

const execute = promisify(execFile);

const types = {
  manifest: "application/vnd.oci.image.manifest.v1+json",
  config: "application/vnd.oci.image.config.v1+json",
  layer: "application/vnd.oci.image.layer.v1.tar+gzip",
};

interface Blob {
  digest: string;
  content: Buffer;
  mediaType: string;
}

/** An image that no engine has made: `digest` is its manifest's. */
export interface OciImage {
  digest: string;
  manifest: Blob;
  config: Blob;
  layers: readonly Blob[];
}

/**
 * Makes a small image of the machine's static busybox as `buildImage` does, without an engine. Two images share the
 * layer of their programs and differ at least in /etc/image-id. `programs`: those linked, all unless given. `config`:
 * more of its configuration, such as `{ User: "1000" }`.
 */
export async function makeImage(o: {
  command: readonly string[];
  files?: Readonly<Record<string, string>>;
  /** More programs, by their path. */
  executables?: Readonly<Record<string, Buffer>>;
  programs?: readonly string[];
  config?: Readonly<Record<string, unknown>>;
}): Promise<OciImage> {
  const applets = o.programs ?? (await listApplets());
  const { stdout } = await execute("sh", ["-c", "command -v busybox"]);
  const programs = layerOf([
    ...["bin/", "etc/", "var/", "www/"].map((name) => tarEntry(name, { type: "5", mode: 0o755 })),
    tarEntry("tmp/", { type: "5", mode: 0o1777 }),
    tarEntry("bin/busybox", { type: "0", mode: 0o755, body: await readFile(stdout.trim()) }),
    ...applets
      .filter((name) => name !== "busybox")
      .map((name) => tarEntry(`bin/${name}`, { type: "2", mode: 0o777, link: "busybox" })),
  ]);
  const files = layerOf([
    ...Object.entries({ "etc/image-id": crypto.randomUUID(), ...o.files }).map(([path, text]) =>
      tarEntry(path.replace(/^\//, ""), { type: "0", mode: 0o644, body: Buffer.from(text) }),
    ),
    ...Object.entries(o.executables ?? {}).map(([path, body]) =>
      tarEntry(path.replace(/^\//, ""), { type: "0", mode: 0o755, body }),
    ),
  ]);
  const layers = [programs, files];
  const config = blobOf(
    types.config,
    JSON.stringify({
      architecture: { x64: "amd64" }[process.arch as string] ?? process.arch,
      os: "linux",
      config: { Cmd: o.command, Env: ["PATH=/usr/local/bin:/bin"], ...o.config },
      rootfs: { type: "layers", diff_ids: layers.map(({ diffId }) => diffId) },
    }),
  );
  const blobs = layers.map(({ blob }) => blob);
  const manifest = blobOf(
    types.manifest,
    JSON.stringify({
      schemaVersion: 2,
      mediaType: types.manifest,
      config: descriptorOf(config),
      layers: blobs.map(descriptorOf),
    }),
  );
  return { digest: manifest.digest, manifest, config, layers: blobs };
}

function layerOf(entries: readonly Buffer[]): { diffId: string; blob: Blob } {
  const content = Buffer.concat([...entries, Buffer.alloc(1024)]);
  return { diffId: digestOf(content), blob: blobOf(types.layer, gzipSync(content, { level: 1 })) };
}

function blobOf(mediaType: string, content: Buffer | string): Blob {
  const bytes = Buffer.from(content);
  return { digest: digestOf(bytes), content: bytes, mediaType };
}

function descriptorOf({ mediaType, digest, content }: Blob) {
  return { mediaType, digest, size: content.length };
}

function digestOf(content: Buffer): string {
  return `sha256:${createHash("sha256").update(content).digest("hex")}`;
}

/** The image as a file that containerd imports under this name (image-spec, "OCI Image Layout"). */
export function imageArchive({ manifest, config, layers }: OciImage, name: string): Buffer {
  const index = {
    schemaVersion: 2,
    manifests: [{ ...descriptorOf(manifest), annotations: { "io.containerd.image.name": name } }],
  };
  const file = (path: string, body: Buffer) => tarEntry(path, { type: "0", mode: 0o644, body });
  return Buffer.concat([
    file("oci-layout", Buffer.from('{"imageLayoutVersion":"1.0.0"}')),
    file("index.json", Buffer.from(JSON.stringify(index))),
    ...[manifest, config, ...layers].map(({ digest, content }) => file(`blobs/${digest.replace(":", "/")}`, content)),
    Buffer.alloc(1024),
  ]);
}

/**
 * Pushes it to a registry that speaks plain HTTP, or HTTPS if `isSecure`, and answers `host/repository@digest`
 * (distribution-spec, "Pushing").
 */
export async function pushImage(
  image: OciImage,
  o: {
    host: string;
    repository: string;
    credential?: { username: string; password: string } | undefined;
    isSecure?: boolean;
  },
): Promise<string> {
  const { host, repository, credential } = o;
  const authorization: Record<string, string> = credential
    ? { authorization: `Basic ${Buffer.from(`${credential.username}:${credential.password}`).toString("base64")}` }
    : {};
  const base = `${o.isSecure ? "https" : "http"}://${host}/v2/${repository}`;
  const send = async (method: string, url: string, body?: Buffer, type = "application/octet-stream") => {
    const headers = { ...authorization, ...(body && { "content-type": type }) };
    const response = await fetch(url, { method, headers, ...(body && { body: new Uint8Array(body) }) });
    if (!response.ok) throw new Error(`${method} ${url}: ${response.status} ${await response.text()}`);
    return response;
  };
  for (const { digest, content } of [image.config, ...image.layers]) {
    const known = await fetch(`${base}/blobs/${digest}`, { method: "HEAD", headers: authorization });
    if (known.ok) continue;
    const upload = await send("POST", `${base}/blobs/uploads/`);
    const place = new URL(upload.headers.get("location") ?? "", base);
    place.searchParams.set("digest", digest);
    await send("PUT", place.href, content);
  }
  await send("PUT", `${base}/manifests/${image.digest}`, image.manifest.content, types.manifest);
  return `${host}/${repository}@${image.digest}`;
}

import { createHash } from "node:crypto";
import { isDigest } from "./reference.ts";

export interface Descriptor {
  readonly digest: string;
  /** In bytes, as the manifest has it. */
  readonly size: number;
}

/** What a manifest leads to: an image, or the manifests of an index that run on this architecture, the best first. */
export type Manifest =
  | {
      readonly kind: "image";
      readonly mediaType: string;
      readonly config: Descriptor;
      readonly layers: readonly Descriptor[];
    }
  | { readonly kind: "index"; readonly candidates: readonly string[] };

/** A manifest that no image is pulled by. The message is the predicate of a sentence about it: "is larger than …". */
export class ManifestRefused extends Error {
  override readonly name = "ManifestRefused";
}

/** Several times the size for 127 layers, the most that engines run. */
const maxBytes = 256 * 1024;

/**
 * Strings, brackets and commas, several times what a manifest or config has. A great many small values block the
 * process longer than their size suggests.
 */
const maxTokens = 20_000;

/** Several times what a manifest or config has. Reading one value in another takes some of the stack for each. */
const maxDepth = 50;

/** Keys that engines read in a manifest. */
const knownKeys = new Set(
  ["schemaVersion", "mediaType", "config", "layers", "manifests", "fsLayers", "history", "signatures"].concat(
    ["digest", "size", "urls", "platform", "os", "architecture", "variant"], // of a descriptor
  ),
);
const ociImage = "application/vnd.oci.image.manifest.v1+json";
const dockerImage = "application/vnd.docker.distribution.manifest.v2+json";
/** Keys of a config that say what an image's layers are. Others may be anything: labels have any name. */
const rootfsKeys = new Set(["rootfs", "diff_ids"]);

/**
 * What an engine may take for its own architecture, by Node's name for it, the best first: containerd's platform
 * matching falls back to 32-bit entries, and it normalizes other names.
 */
const architectures: Partial<Record<string, readonly string[]>> = {
  x64: ["amd64", "x86_64", "x86-64", "386", "i386"],
  arm64: ["arm64", "aarch64", "arm", "armhf", "armel"],
};

/**
 * Reads a schema 2 or OCI manifest so that no engine can read it differently: what Go's decoder and JSON.parse would
 * take for different things (duplicate keys, and keys in other letter case) and what is an image and an index at once
 * is refused.
 *
 * @param architecture Node's name for the engine's architecture; for an unknown one every entry for linux is a
 * candidate
 * @throws ManifestRefused
 */
export function readManifest(body: Buffer, architecture: string = process.arch): Manifest {
  if (body.length > maxBytes) throw new ManifestRefused(`is larger than ${maxBytes} bytes`);
  const manifest = parseUnambiguously(body.toString(), knownKeys);
  if (["fsLayers", "history", "signatures"].some((key) => key in manifest) || manifest.schemaVersion !== 2) {
    throw new ManifestRefused("is not of schema version 2, the only one supported");
  }
  const { config, layers, manifests } = manifest;
  if (Array.isArray(manifests) && config === undefined && layers === undefined) {
    const names = architectures[architecture];
    const ranked = manifests
      .filter((entry) => mayBeChosen(entry, names))
      .map((entry) => ({ digest: digestIn(entry), rank: rankOf(entry, names ?? [architecture]) }))
      .sort((one, other) => one.rank - other.rank);
    return { kind: "index", candidates: [...new Set(ranked.map(({ digest }) => digest))] };
  }
  if (manifests !== undefined) throw new ManifestRefused("is neither an image nor an index");
  if (!Array.isArray(layers)) throw new ManifestRefused("has no list of layers");
  return {
    kind: "image",
    mediaType: readImageType(manifest),
    config: readDescriptor(config),
    layers: layers.map(readDescriptor),
  };
}

/**
 * What each of an image's layers is when unpacked, by its config, in the order of the manifest's layers. Read like a
 * manifest so that no engine can read it differently: one that stores unpacked layers by these digests doesn't look at
 * a layer whose digest it has.
 *
 * @throws ManifestRefused
 */
export function readDiffIds(config: Buffer): string[] {
  const { rootfs } = parseConfig(config.toString());
  const ids = isObject(rootfs) ? rootfs.diff_ids : undefined;
  if (!Array.isArray(ids)) throw new ManifestRefused("names a config that is not of a container image");
  return ids.map((digest) => digestIn({ digest }));
}

/** Whether these bytes have this digest, which `isDigest` has accepted. */
export function hasDigest(body: Buffer, digest: string): boolean {
  const [algorithm = "", hash] = digest.split(":");
  return createHash(algorithm).update(body).digest("hex") === hash;
}

function parseConfig(text: string): Record<string, unknown> {
  try {
    return parseUnambiguously(text, rootfsKeys);
  } catch (error) {
    if (!(error instanceof ManifestRefused)) throw error;
    throw new ManifestRefused(`names a config that ${error.message}`, { cause: error });
  }
}

/** @param known what is read in it: these in other letter case are refused */
function parseUnambiguously(text: string, known: ReadonlySet<string>): Record<string, unknown> {
  try {
    // Matches whole strings in turn, so that nothing within a string counts; those before a colon are keys. A string
    // without an end matches too: else the search would begin again at each quote within it.
    let tokens = 0;
    let keys = 0;
    for (const [, colon] of text.matchAll(/"(?:[^"\\]|\\.)*"?(\s*:)?|[[{,]/g)) {
      if (++tokens > maxTokens) throw new ManifestRefused(`has more than ${maxTokens} tokens`);
      if (colon !== undefined) keys += 1;
    }
    const value: unknown = JSON.parse(text);
    if (!isObject(value)) throw new ManifestRefused("is not an object");
    const folded = new Set([...known].map(fold));
    if (countKeys(value, known, folded) !== keys) throw new ManifestRefused("has a duplicate key");
    return value;
  } catch (error) {
    if (error instanceof ManifestRefused) throw error;
    throw new ManifestRefused("can't be parsed");
  }
}

/** Throws on a key that an engine might take for another, since Go's decoder ignores letter case. */
function countKeys(value: unknown, known: ReadonlySet<string>, folded: ReadonlySet<string>, depth = 1): number {
  if (depth > maxDepth) throw new ManifestRefused("is nested too deeply");
  const countIn = (each: unknown) => countKeys(each, known, folded, depth + 1);
  if (Array.isArray(value)) return value.reduce<number>((count, each) => count + countIn(each), 0);
  if (!isObject(value)) return 0;
  return Object.entries(value).reduce((count, [key, each]) => {
    if (folded.has(fold(key)) && !known.has(key)) throw new ManifestRefused("has a key in unusual letter case");
    return count + 1 + countIn(each);
  }, 0);
}

/** Equal for keys that differ in letter case only. To upper case first, since Go takes the long s for an s. */
export function fold(key: string): string {
  return key.toUpperCase().toLowerCase();
}

/** Whether an engine may choose this entry of an index: any that is not plainly for another system. */
function mayBeChosen(entry: unknown, names: readonly string[] | undefined): boolean {
  const platform = isObject(entry) && isObject(entry.platform) ? entry.platform : {};
  return mayBe(platform.os, ["linux"]) && (names === undefined || mayBe(platform.architecture, names));
}

/** The lower, the better for an engine of these architectures. Entries that don't say what they are for come last. */
function rankOf(entry: unknown, names: readonly string[]): number {
  const platform = isObject(entry) && isObject(entry.platform) ? entry.platform : {};
  const { architecture, variant } = platform;
  const index = typeof architecture === "string" ? names.indexOf(architecture.toLowerCase()) : -1;
  if (index < 0) return names.length * 100;
  const version = typeof variant === "string" ? Number(/^v(\d{1,2})/.exec(variant)?.[1] ?? 50) : undefined;
  // Of arm64 and amd64 the oldest runs everywhere; an engine that runs 32-bit arm beside arm64 runs the newest of it.
  const isArm32 = /^arm(hf|el)?$/.test(names[index] ?? "");
  return index * 100 + (isArm32 ? 50 - (version ?? 7) : (version ?? 0));
}

function mayBe(value: unknown, names: readonly string[]): boolean {
  return typeof value !== "string" || !/^[\x20-\x7e]+$/.test(value) || names.includes(value.toLowerCase());
}

function digestIn(descriptor: unknown): string {
  if (isObject(descriptor) && typeof descriptor.digest === "string" && isDigest(descriptor.digest)) {
    return descriptor.digest;
  }
  throw new ManifestRefused("has a descriptor without a valid digest");
}

function readDescriptor(descriptor: unknown): Descriptor {
  const { size, urls } = isObject(descriptor) ? descriptor : {};
  // Where containerd downloads it from, whatever the registry: that would be an address that a tenant names.
  if (urls !== undefined && urls !== null && !(Array.isArray(urls) && urls.length === 0)) {
    throw new ManifestRefused("names something that is at a URL instead of at the registry");
  }
  if (typeof size !== "number" || !Number.isSafeInteger(size) || size < 0) {
    throw new ManifestRefused("names something without a size");
  }
  return { digest: digestIn(descriptor), size };
}

/** An OCI manifest may leave its own type out. */
function readImageType({ mediaType, config }: Record<string, unknown>): string {
  if (mediaType === ociImage || mediaType === dockerImage) return mediaType;
  const type = isObject(config) ? config.mediaType : undefined;
  return typeof type === "string" && type.startsWith("application/vnd.oci.") ? ociImage : dockerImage;
}

function isObject(value: unknown): value is Record<string, unknown> {
  return typeof value === "object" && value !== null && !Array.isArray(value);
}

import { createHash } from "node:crypto";
import { isDigest } from "./reference.ts";

/** What a manifest leads to: the config of an image, or the manifests of an index that an engine may choose from. */
export type Manifest =
  | { readonly kind: "image"; readonly config: string }
  | { readonly kind: "index"; readonly candidates: readonly string[] };

/** Not a manifest that an image can be pulled by; the message ends a sentence about it. */
export class ManifestRefused extends Error {
  override readonly name = "ManifestRefused";
}

/** Several times what an image of 127 layers, the most that engines run, takes; to read it keeps the process busy for some 30 ms. */
const mostBytes = 256 * 1024;

/** Names that engines read in a manifest. */
const knownKeys = new Set(
  ["schemaVersion", "mediaType", "config", "layers", "manifests", "fsLayers", "history", "signatures"].concat(
    ["digest", "size", "platform", "os", "architecture", "variant"], // of a descriptor
  ),
);
const foldedKeys = new Set([...knownKeys].map(fold));

/**
 * What an engine takes for its own architecture, by Node's name of it: containerd's platform matching falls back to the
 * 32-bit entries, and its normalization knows other names.
 */
const architectures: Partial<Record<string, readonly string[]>> = {
  x64: ["amd64", "x86_64", "x86-64", "386", "i386"],
  arm64: ["arm64", "aarch64", "arm", "armhf", "armel"],
};

/**
 * Reads a schema 2 or OCI manifest so that no engine can read it as another one: what Go's decoder and JSON.parse would take
 * differently (repeated names, and names in other letter case) and what is image and index at once is refused.
 *
 * @param architecture Node's name of the engine's architecture; of an unknown one every entry for linux is a candidate
 * @throws ManifestRefused
 */
export function readManifest(body: Buffer, architecture: string = process.arch): Manifest {
  if (body.length > mostBytes) throw new ManifestRefused(`is larger than ${mostBytes} bytes`);
  const manifest = parseUnambiguously(body.toString());
  if (["fsLayers", "history", "signatures"].some((key) => key in manifest) || manifest.schemaVersion !== 2) {
    throw new ManifestRefused("is not of schema 2, the only one supported");
  }
  const { config, layers, manifests } = manifest;
  if (Array.isArray(manifests) && config === undefined && layers === undefined) {
    const entries = manifests.filter((entry) => mayBeChosen(entry, architectures[architecture]));
    return { kind: "index", candidates: [...new Set(entries.map(digestIn))] };
  }
  if (manifests !== undefined) throw new ManifestRefused("is neither an image nor an index");
  return { kind: "image", config: digestIn(config) };
}

export function hasDigest(body: Buffer, digest: string): boolean {
  const [algorithm = "", hash] = digest.split(":");
  return createHash(algorithm).update(body).digest("hex") === hash;
}

function parseUnambiguously(text: string): Record<string, unknown> {
  try {
    const value: unknown = JSON.parse(text);
    if (!isObject(value)) throw new ManifestRefused("is not an object");
    // Strings in turn, so that none is looked for within another; those before a colon are names.
    let names = 0;
    for (const [, colon] of text.matchAll(/"(?:[^"\\]|\\.)*"(\s*:)?/g)) if (colon !== undefined) names++;
    if (countNames(value) !== names) throw new ManifestRefused("has a name twice");
    return value;
  } catch (error) {
    if (error instanceof ManifestRefused) throw error;
    // Not JSON, or nested so deeply that the stack overflows.
    throw new ManifestRefused("can't be read");
  }
}

/** Throws on a name that an engine might take for one that it is not, since Go's decoder doesn't mind letter case. */
function countNames(value: unknown): number {
  if (Array.isArray(value)) return value.reduce<number>((count, each) => count + countNames(each), 0);
  if (!isObject(value)) return 0;
  return Object.entries(value).reduce((count, [key, each]) => {
    if (foldedKeys.has(fold(key)) && !knownKeys.has(key)) throw new ManifestRefused("has a misspelt name");
    return count + 1 + countNames(each);
  }, 0);
}

/** Equal for names that differ by case alone; to upper case first, for the long s that is an s to Go. */
function fold(name: string): string {
  return name.toUpperCase().toLowerCase();
}

/** Whether an engine may take this entry of an index; only what is plainly for another system is not. */
function mayBeChosen(entry: unknown, names: readonly string[] | undefined): boolean {
  const platform = isObject(entry) && isObject(entry.platform) ? entry.platform : {};
  return mayBe(platform.os, ["linux"]) && (names === undefined || mayBe(platform.architecture, names));
}

function mayBe(value: unknown, names: readonly string[]): boolean {
  return typeof value !== "string" || !/^[\x20-\x7e]+$/.test(value) || names.includes(value.toLowerCase());
}

function digestIn(descriptor: unknown): string {
  if (isObject(descriptor) && typeof descriptor.digest === "string" && isDigest(descriptor.digest)) {
    return descriptor.digest;
  }
  throw new ManifestRefused("names something without a digest");
}

function isObject(value: unknown): value is Record<string, unknown> {
  return typeof value === "object" && value !== null && !Array.isArray(value);
}

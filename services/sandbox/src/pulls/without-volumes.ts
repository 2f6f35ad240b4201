import { createHash } from "node:crypto";
import { fold } from "@sandgate/registry-client/manifest";
import { configTooLarge, imageRefused, maxConfigBytes, maxPathBytes } from "../runtime/image-limits.ts";
import { maxVolumes, volumesLabel } from "../runtime/images.ts";

/** An image's documents, as the engine gets them. */
export interface ImageDocuments {
  readonly manifest: Document;
  readonly config: Document;
}

interface Document {
  readonly digest: string;
  readonly content: Uint8Array;
}

/**
 * Returns the image without its volumes: writes there then go where all others do, with a limit, and the image's own
 * files there stay. A label keeps their paths. An image without volumes is returned as it is; otherwise its manifest
 * and its config have new digests. Throws what `volumesOf` throws.
 */
export function withoutVolumes(image: ImageDocuments): ImageDocuments {
  const paths = JSON.stringify(volumesOf(image.config.content));
  const text = Buffer.from(image.config.content).toString();
  // Engines read keys in any letter case.
  let hasVolumes = false;
  const drop = (volumes: unknown) => {
    // The engine's own builds write null for none.
    if (volumes === null) return null;
    hasVolumes = true;
    return undefined;
  };
  const config = mapKeys(JSON.parse(text), "config", (settings) => {
    const kept = mapKeys(settings, "volumes", drop);
    if (!hasVolumes || !isObject(kept)) return kept;
    // Engines merge what keys have that differ in letter case alone.
    const { Labels: labels } = kept;
    return { ...kept, Labels: { ...(isObject(labels) && labels), [volumesLabel]: paths } };
  });
  if (!hasVolumes) return image;
  const changed = documentOf(config);
  const manifest = JSON.parse(Buffer.from(image.manifest.content).toString());
  const { mediaType } = manifest.config;
  return {
    config: changed,
    manifest: documentOf({
      ...manifest,
      config: { mediaType, digest: changed.digest, size: changed.content.length },
    }),
  };
}

/**
 * The paths that an image's config declares as volumes. Throws PROVISIONING_FAILED for a config with which a tenant
 * could keep a host busy: many volumes, or beyond the limits that Docker's adapter checks too.
 */
export function volumesOf(config: Uint8Array): string[] {
  const paths: string[] = [];
  const command: unknown[] = [];
  const folders: unknown[] = [];
  let bytes = 0;
  mapKeys(JSON.parse(Buffer.from(config).toString()), "config", (settings) => {
    // Engines merge what is there in several letter cases.
    bytes += Buffer.byteLength(JSON.stringify(settings));
    mapKeys(settings, "volumes", (volumes) => {
      if (typeof volumes === "object" && volumes !== null) paths.push(...Object.keys(volumes));
    });
    for (const name of ["entrypoint", "cmd"]) mapKeys(settings, name, (value) => command.push(value ?? []));
    mapKeys(settings, "workingdir", (value) => folders.push(value));
  });
  if (bytes > maxConfigBytes) throw configTooLarge();
  if (paths.length > maxVolumes) throw imageRefused(`declares ${paths.length} volumes; the limit is ${maxVolumes}`);
  if (
    [...paths, ...command.flat().slice(0, 1), ...folders].some((each) => Buffer.byteLength(String(each)) > maxPathBytes)
  ) {
    throw imageRefused(`has a volume, command or working directory longer than ${maxPathBytes} bytes`);
  }
  return paths;
}

/** Changes the value of each key that is read as this name, or drops the key; returns anything else as it is. */
function mapKeys(value: unknown, name: string, change: (value: unknown) => unknown): unknown {
  if (!isObject(value)) return value;
  return Object.fromEntries(
    Object.entries(value).map(([key, each]) => [key, fold(key) === name ? change(each) : each]),
  );
}

function isObject(value: unknown): value is Record<string, unknown> {
  return typeof value === "object" && value !== null && !Array.isArray(value);
}

function documentOf(value: unknown): Document {
  const content = Buffer.from(JSON.stringify(value));
  return { digest: `sha256:${createHash("sha256").update(content).digest("hex")}`, content };
}

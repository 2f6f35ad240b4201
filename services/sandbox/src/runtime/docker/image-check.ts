import { posix } from "node:path";
import { type Engine, inspectImage } from "@sandgate/docker-engine/client";
import { engineMessageOf, ignoreStatus, statusOf } from "@sandgate/docker-engine/errors";
import { configTooLarge, imageRefused, maxConfigBytes, maxPathBytes } from "../image-limits.ts";
import { maxVolumes, volumesLabel } from "../images.ts";

/** Images remembered as checked, each with its volumes. A pinned reference always means the same image. */
const maxRemembered = 1_000;

/** Paths in an image's containers. */
export interface ImagePaths {
  /** Those that it declares as volumes, which only an image has that was not pulled by us. */
  volumes: readonly string[];
  /** Those that it declared as volumes when it was pulled. */
  folders: readonly string[];
}

export const noPaths: ImagePaths = { volumes: [], folders: [] };

/**
 * Checks images before their first container is created. It refuses one whose config is too large, and one whose
 * command or working directory is longer than a path can be: the OCI runtime's error repeats it, and one longer than a
 * pipe's buffer blocks the engine for ever, with the container locked. Throws PROVISIONING_FAILED.
 */
export function createImageCheck(engine: Engine): (reference: string) => Promise<ImagePaths> {
  const checked = new Map<string, ImagePaths>();
  return async (reference) => {
    const known = checked.get(reference);
    if (known) return known;
    const image = await ignoreStatus([404], inspectImage(engine, reference));
    // The creation of the container reports an image that is gone.
    if (!image) return noPaths;
    if (Buffer.byteLength(JSON.stringify(image.Config)) > maxConfigBytes) {
      throw configTooLarge();
    }
    const { Entrypoint: entrypoint, Cmd: command, WorkingDir: folder } = image.Config;
    const program = [entrypoint ?? [], command ?? []].flat()[0] ?? "";
    if (Math.max(Buffer.byteLength(program), Buffer.byteLength(folder ?? "")) > maxPathBytes) {
      throw imageRefused(`has a command or working directory longer than ${maxPathBytes} bytes`);
    }
    if (checked.size >= maxRemembered) checked.clear();
    const { Volumes: volumes, Labels: labels } = image.Config;
    const paths = {
      volumes: Object.keys(volumes ?? {}).map(resolve),
      folders: foldersOf(labels?.[volumesLabel] ?? "[]"),
    };
    checked.set(reference, paths);
    return paths;
  };
}

/** Whether the engine refused to create a container since it doesn't have the image. */
export function isImageMissing(error: unknown): boolean {
  return statusOf(error) === 404 && /no such image/i.test(engineMessageOf(error));
}

const resolve = (path: string) => posix.resolve("/", path);

/** A label that is not of our making, which an image may have too, says nothing. */
function foldersOf(label: string): string[] {
  const paths = parse(label);
  const isList = Array.isArray(paths) && paths.length <= maxVolumes && paths.every((path) => typeof path === "string");
  const folders = isList ? paths.map(resolve) : [];
  return folders.filter((path) => Buffer.byteLength(path) <= maxPathBytes && !path.includes("\0"));
}

function parse(text: string): unknown {
  try {
    return JSON.parse(text);
  } catch {
    return undefined;
  }
}

import { posix } from "node:path";
import { callEngine, type Engine } from "@sandgate/docker-engine/client";
import { ignoreStatus } from "@sandgate/docker-engine/errors";
import { configTooLarge, imageRefused, maxConfigBytes, maxPathBytes } from "../image-limits.ts";

/** Images remembered as checked, each with its volumes. A pinned reference always means the same image. */
const maxRemembered = 1_000;

/** Paths in an image's containers that it declares as volumes. */
export type Volumes = readonly string[];

/**
 * Checks images before their first container is created. It refuses one whose config is too large, and one whose
 * command or working directory is longer than a path can be: the OCI runtime's error repeats it, and one longer than a
 * pipe's buffer blocks the engine for ever, with the container locked. Returns the image's volumes. Throws
 * PROVISIONING_FAILED.
 */
export function createImageCheck(engine: Engine): (reference: string) => Promise<Volumes> {
  const checked = new Map<string, Volumes>();
  return async (reference) => {
    const known = checked.get(reference);
    if (known) return known;
    const image = await ignoreStatus(
      [404],
      callEngine(() => engine.getImage(reference).inspect()),
    );
    // The creation of the container reports an image that is gone.
    if (!image) return [];
    if (Buffer.byteLength(JSON.stringify(image.Config)) > maxConfigBytes) {
      throw configTooLarge();
    }
    const { Entrypoint: entrypoint, Cmd: command, WorkingDir: folder } = image.Config;
    const program = [entrypoint ?? [], command ?? []].flat()[0] ?? "";
    if (Math.max(Buffer.byteLength(program), Buffer.byteLength(folder ?? "")) > maxPathBytes) {
      throw imageRefused(`has a command or working directory longer than ${maxPathBytes} bytes`);
    }
    if (checked.size >= maxRemembered) checked.clear();
    const volumes = Object.keys(image.Config.Volumes ?? {}).map((path) => posix.resolve("/", path));
    checked.set(reference, volumes);
    return volumes;
  };
}

import { callEngine, type Engine } from "@sandgate/docker-engine/client";
import { ignoreStatus } from "@sandgate/docker-engine/errors";
import { DomainError } from "@sandgate/kit/base/domain-error";

/** Linux's PATH_MAX without the NUL at its end. */
const maxPathBytes = 4_095;

/**
 * What an image may say about its containers, as JSON. The engine repeats much of it in each list of containers; some of
 * the 4 MiB that registries accept would break every client of the engine.
 */
const maxConfigBytes = 64 * 1024;

/** Images remembered as checked. A pinned reference always means the same image. */
const maxRemembered = 1_000;

/**
 * Checks images before their first container is created. It refuses one whose config is too large, and one whose command
 * or working directory is longer than a path can be: the OCI runtime's error repeats it, and one longer than a pipe's buffer
 * blocks the engine for ever, with the container locked. Throws PROVISIONING_FAILED.
 */
export function createImageCheck(engine: Engine): (reference: string) => Promise<void> {
  const checked = new Set<string>();
  return async (reference) => {
    if (checked.has(reference)) return;
    const image = await ignoreStatus(
      [404],
      callEngine(() => engine.getImage(reference).inspect()),
    );
    // The creation of the container reports an image that is gone.
    if (!image) return;
    if (Buffer.byteLength(JSON.stringify(image.Config)) > maxConfigBytes) {
      throw refuse(`labels, environment and the rest of its config are larger than ${maxConfigBytes} bytes`);
    }
    const { Entrypoint: entrypoint, Cmd: command, WorkingDir: folder } = image.Config;
    const program = [entrypoint ?? [], command ?? []].flat()[0] ?? "";
    if (Math.max(Buffer.byteLength(program), Buffer.byteLength(folder ?? "")) > maxPathBytes) {
      throw refuse(`command or working directory is longer than ${maxPathBytes} bytes`);
    }
    if (checked.size >= maxRemembered) checked.clear();
    checked.add(reference);
  };
}

function refuse(problem: string): DomainError {
  return new DomainError("PROVISIONING_FAILED", `The container could not be started: the image's ${problem}.`);
}

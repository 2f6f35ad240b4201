import { execFile } from "node:child_process";
import { promisify } from "node:util";
import { containerNameOf } from "@sandgate/container-labels";
import { type ContainerInspectInfo, callEngine, type Engine } from "@sandgate/docker-engine/client";
import { ignoreStatus, throwUnavailable, toRuntimeUnavailable } from "@sandgate/docker-engine/errors";
import { mebibyte } from "@sandgate/kit/base/sizes";
import type { DiskUse, RuntimeDisk } from "../disk.ts";
import { exists } from "./files.ts";

const execute = promisify(execFile);

/** The engine walks through all files: of millions for some seconds. */
const measureTimeoutMs = 120_000;

/** With the length of all files that were written, which dockerode's types lack. */
type Measured = ContainerInspectInfo & { SizeRw?: number };

/** The disk of a Docker-compatible engine. `limitMb` is what a sandbox may write. */
export function createDockerDisk({ engine, limitMb }: { engine: Engine; limitMb: number }): RuntimeDisk {
  return {
    async measure(sandboxId, signal) {
      try {
        return await measureUse(engine, sandboxId, limitMb * mebibyte, signal);
      } catch (error) {
        if (signal.aborted) throw signal.reason;
        throw toRuntimeUnavailable(error);
      }
    },
    async findFolder() {
      const { DockerRootDir: folder } = await callEngine(() => engine.info()).catch(throwUnavailable);
      return (await exists(folder)) ? folder : undefined;
    },
  };
}

/**
 * The engine adds up the lengths of files, and a file with holes, as databases make them, may be longer than the disk.
 * So what is more than `limitBytes` is measured again by the blocks that files take, where that can be done.
 */
async function measureUse(
  engine: Engine,
  sandboxId: string,
  limitBytes: number,
  signal: AbortSignal,
): Promise<DiskUse> {
  const container = engine.getContainer(containerNameOf(sandboxId));
  const limits = { signal, timeoutMs: measureTimeoutMs };
  const info: Measured | undefined = await ignoreStatus(
    [404],
    callEngine((abortSignal) => {
      const options = { size: true, abortSignal };
      return container.inspect(options);
    }, limits),
  );
  if (!info?.State.Running) return undefined;
  if (info.HostConfig.StorageOpt?.size !== undefined) return "limited";
  const bytes = info.SizeRw ?? 0;
  const folder = upperFolderOf(info.GraphDriver.Data);
  if (bytes <= limitBytes || folder === undefined || !(await exists(folder))) return bytes;
  return (await findBlockBytes(folder, signal)) ?? bytes;
}

/** Where overlay2 keeps what a container writes. */
function upperFolderOf(data: object | null): string | undefined {
  return data && "UpperDir" in data && typeof data.UpperDir === "string" ? data.UpperDir : undefined;
}

/** Undefined where `du` can't measure it. */
async function findBlockBytes(folder: string, signal: AbortSignal): Promise<number | undefined> {
  const options = { signal, timeout: measureTimeoutMs };
  const { stdout } = await execute("du", ["-s", "-x", "-k", folder], options).catch((error: unknown) => {
    signal.throwIfAborted();
    // Where files go while it reads them, it prints the sum of the others and fails.
    return { stdout: error instanceof Error && "stdout" in error ? String(error.stdout) : "" };
  });
  const kibibytes = Number.parseInt(stdout, 10);
  return Number.isNaN(kibibytes) ? undefined : kibibytes * 1024;
}

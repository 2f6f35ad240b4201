import { execFile } from "node:child_process";
import { access } from "node:fs/promises";
import { promisify } from "node:util";
import { type ContainerInspectInfo, callEngine, type Engine } from "@sandgate/docker-engine/client";
import { containerNameOf } from "@sandgate/docker-engine/containers";
import { ignoreStatus } from "@sandgate/docker-engine/errors";
import type { DiskUse } from "../lifecycle.ts";

const execute = promisify(execFile);

/** The engine walks through all files: of millions for some seconds. */
const measureTimeoutMs = 120_000;

/** With the length of all files that were written, which dockerode's types lack. */
type Measured = ContainerInspectInfo & { SizeRw?: number };

/**
 * `Runtime.measureDisk`. What is more than `limitBytes` by the lengths of files, which are all that the engine adds up, is measured
 * again by the blocks that they take, where that can be done: a file with holes, as databases make them, may be longer than
 * the disk.
 */
export async function measureDiskUse(
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

/** Why storage can't limit what a container writes; undefined: it can, or that is not known. */
export function storageProblem(info: {
  Driver: string;
  DriverStatus?: readonly (readonly string[])[] | null;
}): string | undefined {
  const backing = info.DriverStatus?.find(([name]) => name === "Backing Filesystem")?.[1];
  // The engine sets project quotas on xfs alone.
  if (!["overlay2", "vfs"].includes(info.Driver) || backing === undefined || backing === "xfs") return undefined;
  return `${info.Driver} on ${backing} has no quotas`;
}

/** Where overlay2 keeps what a container writes. */
function upperFolderOf(data: object | null): string | undefined {
  return data && "UpperDir" in data && typeof data.UpperDir === "string" ? data.UpperDir : undefined;
}

/** Undefined where it can't be told. */
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

/** Whether the engine's file can be seen from here. */
export async function exists(path: string): Promise<boolean> {
  return access(path).then(
    () => true,
    () => false,
  );
}

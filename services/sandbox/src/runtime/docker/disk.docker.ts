import { stat } from "node:fs/promises";
import { containerNameOf } from "@sandgate/container-labels";
import {
  type ContainerInspectInfo,
  callEngine,
  type Engine,
  openChanges,
  readInfo,
} from "@sandgate/docker-engine/client";
import { ignoreStatus, throwUnavailable, toRuntimeUnavailable } from "@sandgate/docker-engine/errors";
import type { DiskUse, RuntimeDisk } from "../disk.ts";
import { exists } from "./files.ts";
import { runProgram } from "./programs.ts";

/** Of millions of files, for some seconds. */
const measureTimeoutMs = 120_000;
/** More changed files than this are not counted: no limit is as high. */
const maxChanges = 10_000_000;
/** What `blocks` of a file counts in, whatever its file system's own blocks are. */
const blockBytes = 512;

/** With the length of all files that were written, which dockerode's types lack. */
type Measured = ContainerInspectInfo & { SizeRw?: number };

/** The disk of a Docker-compatible engine. */
export function createDockerDisk({ engine }: { engine: Engine }): RuntimeDisk {
  return {
    async measure(sandboxId, signal) {
      try {
        return await measureUse(engine, sandboxId, signal);
      } catch (error) {
        if (signal.aborted) throw signal.reason;
        throw toRuntimeUnavailable(error);
      }
    },
    async findFolder() {
      const { DockerRootDir: folder } = await readInfo(engine).catch(throwUnavailable);
      return (await exists(folder)) ? folder : undefined;
    },
  };
}

/**
 * Measures what files take on the disk where that can be seen from here. Elsewhere the engine adds up the lengths of
 * those in the container's layer, and lists them.
 */
async function measureUse(engine: Engine, sandboxId: string, signal: AbortSignal): Promise<DiskUse | undefined> {
  const container = engine.getContainer(containerNameOf(sandboxId));
  const limits = { signal, timeoutMs: measureTimeoutMs };
  const inspect = async (size: boolean): Promise<Measured | undefined> => {
    const asking = callEngine((abortSignal) => {
      const options = { size, abortSignal };
      return container.inspect(options);
    }, limits);
    return ignoreStatus([404], asking);
  };
  const info = await inspect(false);
  if (!info?.State.Running) return undefined;
  const isLimited = info.HostConfig.StorageOpt?.size !== undefined;
  const seen = await measureFolder(upperFolderOf(info.GraphDriver.Data), signal);
  const layerBytes = isLimited ? undefined : (seen.bytes ?? (await inspect(true))?.SizeRw);
  const engineBytes = await measureEngineFiles(info);
  const bytes =
    layerBytes === undefined && engineBytes === undefined ? undefined : (layerBytes ?? 0) + (engineBytes ?? 0);
  const inodes =
    seen.inodes ??
    (await countChanges(engine, info.Id, AbortSignal.any([signal, AbortSignal.timeout(measureTimeoutMs)])));
  return { ...(bytes !== undefined && { bytes }), ...(inodes !== undefined && { inodes }) };
}

/** Where overlay2 keeps what a container writes. */
function upperFolderOf(data: object | null): string | undefined {
  return data && "UpperDir" in data && typeof data.UpperDir === "string" ? data.UpperDir : undefined;
}

/**
 * Measures the files that the engine keeps for a container outside of its layer, where no storage limits them: root in
 * the container can write to them. Undefined where they can't be seen from here. The engine's archive calls would tell
 * their lengths, but follow paths of a running container, which its tenant may change meanwhile (GHSA-vp62-88p7-qqf5).
 */
async function measureEngineFiles(info: ContainerInspectInfo): Promise<number | undefined> {
  const paths = [info.HostsPath, info.HostnamePath, info.ResolvConfPath];
  const found = await Promise.all(paths.map((path) => stat(path).catch(() => undefined)));
  const seen = found.filter((each) => each !== undefined);
  return seen.length > 0 ? seen.reduce((sum, { blocks }) => sum + blocks * blockBytes, 0) : undefined;
}

/** Measures what is in a folder, as far as `du` can: a file with holes may be longer than the disk. */
async function measureFolder(folder: string | undefined, signal: AbortSignal): Promise<DiskUse> {
  if (folder === undefined || !(await exists(folder))) return {};
  // What it says of files that go while it reads them has their whole paths, as many and as long as a tenant likes.
  const script = 'echo "bytes $(du -s -x -k "$0" 2>/dev/null)"; echo "inodes $(du -s -x --inodes "$0" 2>/dev/null)"';
  // Where files go while it reads them, it prints the sum of the others and fails.
  const { stdout } = await runProgram("sh", ["-c", script, folder], { signal, timeoutMs: measureTimeoutMs });
  const [, kibibytes] = /^bytes (\d+)/m.exec(stdout) ?? [];
  const [, inodes] = /^inodes (\d+)/m.exec(stdout) ?? [];
  return {
    ...(kibibytes !== undefined && { bytes: Number(kibibytes) * 1024 }),
    ...(inodes !== undefined && { inodes: Number(inodes) }),
  };
}

/** Counts the files that the engine lists as changed, without keeping the list, which is as long as a tenant likes. */
async function countChanges(engine: Engine, containerId: string, signal: AbortSignal): Promise<number | undefined> {
  // A quote in a name is escaped, so that no name has this.
  const mark = '"Kind":';
  let count = 0;
  let rest = "";
  const changes = await ignoreStatus([404], openChanges(engine, containerId, signal));
  if (!changes) return undefined;
  for await (const chunk of changes.setEncoding("latin1")) {
    const text = `${rest}${chunk}`;
    for (let at = text.indexOf(mark); at >= 0; at = text.indexOf(mark, at + mark.length)) count += 1;
    rest = text.slice(-(mark.length - 1));
    if (count > maxChanges) break;
  }
  return count;
}

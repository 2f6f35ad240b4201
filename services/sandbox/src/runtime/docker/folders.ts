import { posix } from "node:path";
import { buffer } from "node:stream/consumers";
import { type Container, callEngine } from "@sandgate/docker-engine/client";
import { ignoreStatus } from "@sandgate/docker-engine/errors";
import { pack } from "tar-stream";

/**
 * Makes these folders in a container that has not been started, where its image lacks them: as the engine makes those
 * that it mounts volumes on, root's and open to all for reading. Throws the engine's error.
 */
export async function makeFolders(container: Container, paths: readonly string[]): Promise<void> {
  const missing = new Set<string>();
  for (const path of paths) {
    for (let folder = path; folder !== "/" && !missing.has(folder); folder = posix.dirname(folder)) {
      if (await exists(container, folder)) break;
      missing.add(folder);
    }
  }
  if (missing.size === 0) return;
  // Parents before what is in them.
  const archive = await archiveOf([...missing].toSorted((one, other) => one.length - other.length));
  await callEngine((abortSignal) => container.putArchive(archive, { path: "/", abortSignal }));
}

async function exists(container: Container, path: string): Promise<boolean> {
  const asking = callEngine((abortSignal) => container.infoArchive({ path, abortSignal }));
  return (await ignoreStatus([404], asking)) !== undefined;
}

function archiveOf(folders: readonly string[]): Promise<Buffer> {
  const archive = pack();
  for (const path of folders) archive.entry({ name: path.slice(1), type: "directory", mode: 0o755 });
  archive.finalize();
  return buffer(archive);
}

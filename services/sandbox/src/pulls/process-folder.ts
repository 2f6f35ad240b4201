import { access, constants, mkdir, mkdtemp, readdir, rm } from "node:fs/promises";
import { join } from "node:path";

/** Makes the folder where it is missing. Throws the file system's error unless this process can write there. */
export async function requireWritable(folder: string): Promise<void> {
  await mkdir(folder, { recursive: true, mode: 0o700 });
  await access(folder, constants.W_OK | constants.X_OK);
}

/** Makes a folder for this process alone, and removes those of processes that have ended. */
export async function makeProcessFolder(parent: string): Promise<string> {
  await requireWritable(parent);
  for (const name of await readdir(parent)) {
    const pid = Number(/^pull-(\d+)-/.exec(name)?.[1] ?? process.pid);
    if (pid === process.pid || !isAlive(pid)) await rm(join(parent, name), { recursive: true, force: true });
  }
  return mkdtemp(join(parent, `pull-${process.pid}-`));
}

function isAlive(pid: number): boolean {
  try {
    process.kill(pid, 0);
    return true;
  } catch (error) {
    return error instanceof Error && "code" in error && error.code === "EPERM";
  }
}

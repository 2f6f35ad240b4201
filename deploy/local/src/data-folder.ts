import { accessSync, constants, mkdirSync } from "node:fs";
import { join, resolve } from "node:path";
import { DatabaseSync } from "node:sqlite";

/** The file by which a folder is one installation's at a time. */
export const lockName = "lock";

/** The folder that holds everything one installation keeps, in use by this process alone. */
export interface DataFolder {
  /** The absolute path of something in it. */
  path(name: string): string;
  /** Lets another process use it, as the end of this process does, however it ends. */
  release(): void;
}

/**
 * Makes the folder, readable by its owner alone, if it is missing. Throws an error whose message says why in one line.
 */
export function openDataFolder(folder: string): DataFolder {
  const root = resolve(folder);
  try {
    mkdirSync(root, { recursive: true, mode: 0o700 });
    accessSync(root, constants.R_OK | constants.W_OK | constants.X_OK);
  } catch (cause) {
    throw new Error(`SANDGATE_DATA: the folder ${root} can't be written (${codeOf(cause)})`, { cause });
  }
  const release = lock(join(root, lockName), root);
  return { path: (name) => join(root, name), release };
}

/** An exclusive transaction on an empty database is a lock that the system releases even after a crash. */
function lock(file: string, root: string): () => void {
  const database = new DatabaseSync(file, { timeout: 0 });
  try {
    database.exec("BEGIN EXCLUSIVE");
  } catch (cause) {
    database.close();
    throw new Error(`SANDGATE_DATA: the folder ${root} is in use by another Sandgate`, { cause });
  }
  return () => database.close();
}

function codeOf(error: unknown): string {
  return error instanceof Error && "code" in error ? String(error.code) : String(error);
}

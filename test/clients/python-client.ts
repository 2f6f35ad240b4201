import { execFile } from "node:child_process";
import { existsSync } from "node:fs";
import { rename, rm } from "node:fs/promises";
import { join } from "node:path";
import { promisify } from "node:util";

const execute = promisify(execFile);
const httpx = "0.28.1";
const folder = join(import.meta.dirname, "../../node_modules/.cache", `python-client-httpx-${httpx}`);

/** The folder of the Python client. */
export const pythonClient = join(import.meta.dirname, "../../clients/python");
/** A Python that has what the client needs, once `installHttpx` is done. */
export const python = join(folder, "bin/python");
/** Lets it find the client. */
export const pythonEnv = { PYTHONPATH: join(pythonClient, "src"), PYTHONDONTWRITEBYTECODE: "1" };

/** Installs what the client needs once, into a folder of its own. For `requireServer("python", …)`. */
export async function installHttpx(): Promise<void> {
  if (existsSync(python)) return;
  await execute("python3", ["-c", "import sys; assert sys.version_info >= (3, 10)"]);
  const draft = `${folder}.${process.pid}`;
  try {
    await execute("python3", ["-m", "venv", draft]);
    await execute(join(draft, "bin/python"), ["-m", "pip", "install", "--quiet", `httpx==${httpx}`]);
    await rename(draft, folder).catch(() => {});
  } finally {
    await rm(draft, { recursive: true, force: true });
  }
}

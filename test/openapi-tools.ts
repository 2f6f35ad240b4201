import { execFile } from "node:child_process";
import { createHash } from "node:crypto";
import { access, cp, mkdir, readFile, rm, writeFile } from "node:fs/promises";
import { join } from "node:path";
import { promisify } from "node:util";

const execute = promisify(execFile);
const source = join(import.meta.dirname, "openapi");
const cache = join(import.meta.dirname, "../.cache/openapi");

/** Installs tools that `npm start` has no use for into a folder of the cache, once for each text of `list`. */
async function install(list: string, run: (folder: string) => Promise<unknown>): Promise<string> {
  const digest = createHash("sha256").update(await readFile(join(source, list)));
  const folder = join(cache, digest.digest("hex").slice(0, 16));
  const done = join(folder, "installed");
  try {
    await access(done);
  } catch {
    await rm(folder, { recursive: true, force: true });
    await mkdir(folder, { recursive: true });
    await cp(source, folder, { recursive: true });
    await run(folder);
    await writeFile(done, "");
  }
  return folder;
}

/** The linters of OpenAPI documents, and the generator of types for TypeScript. Returns their folder. */
export const installNodeTools = () =>
  install("package-lock.json", (cwd) =>
    execute("npm", ["ci", "--ignore-scripts", "--no-audit", "--no-fund"], { cwd, timeout: 300_000 }),
  );

/** The generator of clients for Python, in a virtual environment. Returns its folder. */
export const installPythonTools = () =>
  install("requirements.txt", async (cwd) => {
    await execute("python3", ["-m", "venv", "venv"], { cwd, timeout: 120_000 });
    await execute("venv/bin/pip", ["install", "--quiet", "--retries", "1", "-r", "requirements.txt"], {
      cwd,
      timeout: 300_000,
    });
  });

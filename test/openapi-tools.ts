import { execFile } from "node:child_process";
import { createHash } from "node:crypto";
import { cp, readFile } from "node:fs/promises";
import { join } from "node:path";
import { promisify } from "node:util";
import { installOnce } from "@sandgate/test-support/install";

const execute = promisify(execFile);
const source = join(import.meta.dirname, "openapi");
const cache = join(import.meta.dirname, "../.cache/openapi");

/** Installs tools that `npm start` has no use for into a folder of the cache, once for each text of `list`. */
async function install(list: string, run: (draft: string) => Promise<unknown>): Promise<string> {
  const digest = createHash("sha256").update(await readFile(join(source, list)));
  return installOnce(join(cache, digest.digest("hex").slice(0, 16)), async (draft) => {
    await cp(source, draft, { recursive: true });
    await run(draft);
  });
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
    const pip = ["-m", "pip", "install", "--quiet", "--retries", "1", "-r", "requirements.txt"];
    await execute("venv/bin/python", pip, { cwd, timeout: 300_000 });
  });

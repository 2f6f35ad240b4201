// Pythons, and the client of Python as it is installed.
import { execFile } from "node:child_process";
import { createHash } from "node:crypto";
import { readdir, readFile, writeFile } from "node:fs/promises";
import { homedir } from "node:os";
import { join } from "node:path";
import { promisify } from "node:util";
import { installOnce } from "@sandgate/test-support/install";

const execute = promisify(execFile);
export const pythonClient = join(import.meta.dirname, "../../clients/python");
/** Lets Python find the client where it stands. */
export const pythonEnv = { PYTHONPATH: join(pythonClient, "src"), PYTHONDONTWRITEBYTECODE: "1" };
const requirements = join(pythonClient, "tests/requirements.txt");
const cache = join(import.meta.dirname, "../../.cache/python-client");
/** The versions of Python that the client is for, the oldest first. */
export const pythonVersions = ["3.10", "3.11", "3.12", "3.13"] as const;

/**
 * The python of a virtual environment with what the tests need, made once for each text of their requirements. Throws
 * what is missing.
 */
export async function installPythonTools(): Promise<string> {
  const python = "python3";
  await execute(python, ["-c", "import sys; assert sys.version_info >= (3, 10), 'Python 3.10 or newer is needed'"]);
  return makeEnvironment({ name: "tools", python, install: ["-r", requirements] });
}

/** The same for a Python by its version, with httpx alone. */
export async function installHttpx(version: string): Promise<string> {
  const httpx = /^httpx==.*$/m.exec(await readFile(requirements, "utf8"))?.[0] ?? "httpx";
  return makeEnvironment({ name: version, python: await findPython(version), install: [httpx] });
}

async function makeEnvironment(o: { name: string; python: string; install: string[] }): Promise<string> {
  const digest = createHash("sha256").update(await readFile(requirements));
  const name = `${o.name}-${digest.digest("hex").slice(0, 16)}`;
  const folder = await installOnce(join(cache, name), async (draft) => {
    await execute(o.python, ["-m", "venv", draft]);
    const pip = ["-m", "pip", "install", "--quiet", "--disable-pip-version-check", "--retries", "1", ...o.install];
    await execute(join(draft, "bin/python"), pip, { timeout: 300_000 });
  });
  return join(folder, "bin/python");
}

/** A Python on PATH, or one that pyenv has. */
async function findPython(version: string): Promise<string> {
  const versions = join(process.env.PYENV_ROOT ?? join(homedir(), ".pyenv"), "versions");
  const ofPyenv = (await readdir(versions).catch(() => [])).filter((name) => name.startsWith(`${version}.`));
  for (const python of [`python${version}`, ...ofPyenv.map((name) => join(versions, name, "bin/python"))]) {
    const isThere = await execute(python, ["--version"]).then(
      ({ stdout }) => stdout.startsWith(`Python ${version}.`),
      () => false,
    );
    if (isThere) return python;
  }
  throw new Error(`there is no Python ${version}`);
}

/** Builds the wheel and the sdist into a folder, and returns their paths. */
export async function buildPackage(python: string, folder: string): Promise<{ wheel: string; sdist: string }> {
  const built = join(folder, "dist");
  await execute(python, ["-m", "build", "--no-isolation", "--outdir", built, pythonClient]);
  const names = await readdir(built);
  const find = (end: string) => join(built, names.find((name) => name.endsWith(end)) ?? `no ${end}`);
  return { wheel: find(".whl"), sdist: find(".tar.gz") };
}

/**
 * Installs a wheel into a new virtual environment in a folder, which sees the packages of another, and returns its
 * python.
 */
export async function installWheel(o: { python: string; wheel: string; folder: string }): Promise<string> {
  await execute(o.python, ["-m", "venv", "--without-pip", o.folder]);
  const installed = join(o.folder, "bin/python");
  const pip = ["-m", "pip", "--python", installed, "install", "--quiet", "--disable-pip-version-check", "--no-deps"];
  await execute(o.python, [...pip, o.wheel]);
  const ask = async (python: string) => {
    const { stdout } = await execute(python, ["-c", "import sysconfig; print(sysconfig.get_path('purelib'))"]);
    return stdout.trim();
  };
  await writeFile(join(await ask(installed), "tools.pth"), `${await ask(o.python)}\n`);
  return installed;
}

import { execFile } from "node:child_process";
import { join } from "node:path";
import { promisify } from "node:util";
import { installOnce } from "@sandgate/test-support/install";

const execute = promisify(execFile);
/** What users install. */
const version = "2.63.0";
const folder = join(import.meta.dirname, "../../node_modules/.cache", `e2b-python-${version}`);
const python = join(folder, "bin/python");

/** Installs the PyPI package e2b once, into a folder of its own. */
export async function installPackage(): Promise<void> {
  await installOnce(folder, async (draft) => {
    await execute("python3", ["-c", "import sys; assert sys.version_info >= (3, 11)"]);
    await execute("python3", ["-m", "venv", draft]);
    await execute(join(draft, "bin/python"), ["-m", "pip", "install", "--quiet", `e2b==${version}`]);
  });
}

/** Runs a program of the package's synchronous and its asynchronous half. Returns what it prints. */
export async function runProgram(settings: Record<string, string>): Promise<string> {
  const env = { ...process.env, ...settings };
  const { stdout } = await execute(python, [join(import.meta.dirname, "program.py")], { env, timeout: 120_000 });
  return stdout;
}

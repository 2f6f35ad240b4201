import { execFile } from "node:child_process";
import { writeFile } from "node:fs/promises";
import { join } from "node:path";
import { promisify } from "node:util";

const execute = promisify(execFile);
const build = join(import.meta.dirname, "../../clients/typescript/build.ts");

/** Builds and packs the client, and installs it into a folder as npm does. Returns where it is then. */
export async function installClient(folder: string): Promise<string> {
  const dist = join(folder, "dist");
  await execute(process.execPath, [build, dist]);
  const { stdout } = await execute("npm", ["pack", "--json", "--pack-destination", folder], { cwd: dist });
  const [{ filename }] = JSON.parse(stdout);
  await writeFile(join(folder, "package.json"), '{ "type": "module" }');
  const install = ["install", "--offline", "--ignore-scripts", "--no-audit", "--no-fund", "--no-package-lock"];
  await execute("npm", [...install, `./${filename}`], { cwd: folder });
  return join(folder, "node_modules/@sandgate/client");
}

import { execFile } from "node:child_process";
import { cp, mkdir, readFile, writeFile } from "node:fs/promises";
import { machine } from "node:os";
import { join, relative } from "node:path";
import { promisify } from "node:util";
import { readHelperProgram } from "@sandgate/sandbox/helper-program";
import { addProgram, writeImageArchive } from "@sandgate/test-support/program-images";

const execute = promisify(execFile);

const root = join(import.meta.dirname, "../../..");

/** What an image's folder has besides its programs. */
async function addBase(folder: string): Promise<void> {
  for (const name of ["etc", "tmp", "data"]) await mkdir(join(folder, name), { recursive: true });
  await writeFile(join(folder, "etc/passwd"), "root:x:0:0:root:/root:/bin/sh\nnode:x:1000:1000::/tmp:/bin/sh\n");
  await writeFile(join(folder, "etc/group"), "root:x:0:\nnode:x:1000:\n");
}

/** An image of one program of this machine, as a file that a cluster's node can import. */
export async function archiveProgram(o: {
  folder: string;
  name: string;
  program: string;
  /** Its path in the image. */
  place: string;
}): Promise<string> {
  const layer = join(o.folder, "layer");
  await addBase(layer);
  await addProgram(layer, o.program, o.place);
  return writeImageArchive({ folder: o.folder, name: o.name, layers: [layer], config: { Entrypoint: [o.place] } });
}

/**
 * The platform's image, as deploy/Dockerfile describes it, made without an engine and a registry of packages: this
 * machine's Node.js takes the place of the base image, and the packages for production are copied from node_modules. No
 * iptables is in it, which sandboxes as pods don't need.
 */
export async function archivePlatform(o: { folder: string; name: string }): Promise<string> {
  const dockerfile = (await readFile(join(root, "deploy/Dockerfile"), "utf8")).replace(/\\\n/g, " ");
  const read = (pattern: RegExp): string => {
    const [, found] = pattern.exec(dockerfile) ?? [];
    if (found === undefined) throw new Error(`deploy/Dockerfile has nothing like ${pattern}`);
    return found;
  };
  const workdir = read(/^WORKDIR (\S+)$/m);
  const base = join(o.folder, "base");
  await addBase(base);
  await addProgram(base, process.execPath, "/usr/local/bin/node");
  const app = join(o.folder, "app");
  const place = join(app, workdir);
  await mkdir(place, { recursive: true });
  const [, install = ""] = /^RUN npm ci (.*)$/m.exec(dockerfile) ?? [];
  await copyPackages(
    place,
    install.split(/\s+/).filter((each) => /^--(omit|workspace)=/.test(each)),
  );
  await cp(join(root, "package.json"), join(place, "package.json"));
  const isLeftOut = await readIgnored();
  for (const [, from, to] of dockerfile.matchAll(/^COPY (proto|services|facade) (\S+)$/gm)) {
    if (!from || !to) continue;
    await cp(join(root, from), join(place, to), {
      recursive: true,
      filter: (source) => !isLeftOut(relative(root, source)),
    });
  }
  const { bytes } = await readHelperProgram(machine());
  await writeFile(join(app, read(/^RUN node .*writeFileSync\('(\S+)', \(await readHelperProgram/m)), bytes, {
    mode: 0o755,
  });
  return writeImageArchive({
    folder: o.folder,
    name: o.name,
    layers: [base, app],
    config: {
      Entrypoint: JSON.parse(read(/^ENTRYPOINT (\[.*\])$/m)),
      User: read(/^USER (\S+)$/m),
      WorkingDir: workdir,
      Env: ["PATH=/usr/local/bin", ...[...dockerfile.matchAll(/^ENV (\S+=\S+)$/gm)].map(([, setting = ""]) => setting)],
    },
  });
}

/** Copies the packages that `npm ci` with these arguments would install, with the links to the workspaces. */
async function copyPackages(place: string, args: readonly string[]): Promise<void> {
  const { stdout } = await execute("npm", ["ls", "--all", "--parseable", ...args], {
    cwd: root,
    maxBuffer: 16 * 1024 * 1024,
  });
  const paths = stdout
    .split("\n")
    .map((path) => relative(root, path))
    .filter((path) => path.includes("node_modules/"));
  if (paths.length < 50) throw new Error(`npm ls names only ${paths.length} packages`);
  for (const path of paths) {
    // What lies within another package comes with it.
    if (paths.some((each) => path.startsWith(`${each}/`))) continue;
    await cp(join(root, path), join(place, path), { recursive: true, verbatimSymlinks: true });
  }
}

/** Whether a path of the repository is left out by the patterns for any folder in .dockerignore. */
async function readIgnored(): Promise<(path: string) => boolean> {
  const lines = (await readFile(join(root, ".dockerignore"), "utf8")).split("\n");
  const anywhere = lines.flatMap((line) => /^\*\*\/(.+)$/.exec(line)?.[1] ?? []);
  const exact = new Set(lines.filter((line) => /^\w/.test(line)));
  const patterns = anywhere.map(
    (pattern) => new RegExp(`(^|/)${pattern.replaceAll(".", "\\.").replace("*", "[^/]*")}$`),
  );
  return (path) => exact.has(path) || patterns.some((pattern) => pattern.test(path));
}

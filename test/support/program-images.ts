// Images of programs that this machine has, with the shared libraries that they need, without an engine or a registry.

import { execFile } from "node:child_process";
import { createHash } from "node:crypto";
import { createReadStream } from "node:fs";
import { cp, mkdir, readdir, readFile, rename, stat, symlink, writeFile } from "node:fs/promises";
import { dirname, join } from "node:path";
import { pipeline } from "node:stream/promises";
import { promisify } from "node:util";

const execute = promisify(execFile);

const types = {
  manifest: "application/vnd.oci.image.manifest.v1+json",
  config: "application/vnd.oci.image.config.v1+json",
  layer: "application/vnd.oci.image.layer.v1.tar",
};

interface Descriptor {
  mediaType: string;
  digest: string;
  size: number;
}

/** Copies a program into an image's folder at `place`, and its shared libraries to where it looks for them. */
export async function addProgram(folder: string, program: string, place: string): Promise<void> {
  await copyInto(folder, program, place);
  await addLibraries(folder, [program]);
}

/** Copies the shared libraries of programs and of other libraries into an image's folder, to where they are looked for. */
async function addLibraries(folder: string, programs: readonly string[]): Promise<void> {
  // Of a program that is linked statically it says that this is none for it.
  const { stdout } = await execute("ldd", programs).catch((error: { stdout?: string; stderr?: string }) => {
    if (/not a dynamic executable/.test(`${error.stdout}${error.stderr}`)) return { stdout: "" };
    throw error;
  });
  const libraries = [...stdout.matchAll(/(\/\S+) \(0x/g)].map(([, library = ""]) => library);
  for (const library of new Set(libraries)) await copyInto(folder, library, library);
}

async function copyInto(folder: string, from: string, to: string): Promise<void> {
  await mkdir(dirname(join(folder, to)), { recursive: true });
  await cp(from, join(folder, to), { dereference: true });
}

/** What of Python's library no program of a test needs. */
const leftOut =
  /\/(?:site-packages|dist-packages|test|tests|idlelib|tkinter|ensurepip|lib2to3|turtledemo|config-[^/]+)$/;

/** Copies the machine's Python with its library into an image's folder, as /bin/python3 and without other packages. */
export async function addPython(folder: string): Promise<void> {
  const script = "import os, sys, sysconfig; print(os.path.realpath(sys.executable), sysconfig.get_path('stdlib'))";
  const { stdout } = await execute("python3", ["-c", script]);
  const [program = "", library = ""] = stdout.trim().split(" ");
  await addProgram(folder, program, program);
  await cp(library, join(folder, library), { recursive: true, filter: (path) => !leftOut.test(path) });
  const modules = (await readdir(join(library, "lib-dynload"))).map((name) => join(library, "lib-dynload", name));
  await addLibraries(
    folder,
    modules.filter((name) => name.endsWith(".so")),
  );
  await mkdir(join(folder, "bin"), { recursive: true });
  // Python finds its library from where it really is.
  await symlink(program, join(folder, "bin/python3"));
}

/**
 * Copies npm packages of a `node_modules` into that of an image's folder at `place`, with those packages that they need
 * and that are there, and with the libraries of their native parts.
 */
export async function addPackages(
  folder: string,
  place: string,
  modules: string,
  names: readonly string[],
): Promise<void> {
  const found = new Set<string>();
  const find = async (name: string): Promise<void> => {
    if (found.has(name)) return;
    const text = await readFile(join(modules, name, "package.json"), "utf8");
    found.add(name);
    const { dependencies = {}, optionalDependencies = {} } = JSON.parse(text);
    for (const each of Object.keys(dependencies)) await find(each);
    // Such as a native part for another processor.
    for (const each of Object.keys(optionalDependencies)) await find(each).catch(() => {});
  };
  for (const name of names) await find(name);
  for (const name of found) {
    await cp(join(modules, name), join(folder, place, "node_modules", name), { recursive: true });
    const files = await readdir(join(modules, name));
    const native = files.filter((file) => file.endsWith(".node")).map((file) => join(modules, name, file));
    if (native.length > 0) await addLibraries(folder, native);
  }
}

/**
 * Writes an image as a file that containerd imports under this name (image-spec, "OCI Image Layout"): a layer for each
 * folder, whose files are root's. `config`: its configuration, such as `{ Entrypoint: ["node"] }`.
 * @param o.folder where it is put together, and where the file is in the end
 */
export async function writeImageArchive(o: {
  folder: string;
  name: string;
  layers: readonly string[];
  config: Readonly<Record<string, unknown>>;
}): Promise<string> {
  const layout = join(o.folder, "layout");
  await mkdir(join(layout, "blobs/sha256"), { recursive: true });
  const store = async (file: string, mediaType: string): Promise<Descriptor> => {
    const hash = createHash("sha256");
    await pipeline(createReadStream(file), hash);
    const digest = hash.digest("hex");
    const { size } = await stat(file);
    await rename(file, join(layout, "blobs/sha256", digest));
    return { mediaType, digest: `sha256:${digest}`, size };
  };
  const storeJson = async (content: object, mediaType: string) => {
    await writeFile(join(layout, "blob"), JSON.stringify(content));
    return store(join(layout, "blob"), mediaType);
  };
  const layers: Descriptor[] = [];
  for (const folder of o.layers) {
    const file = join(layout, "layer.tar");
    await execute("tar", ["-c", "-f", file, "-C", folder, "--owner=0", "--group=0", "--numeric-owner", "."]);
    layers.push(await store(file, types.layer));
  }
  const config = await storeJson(
    {
      architecture: { x64: "amd64" }[process.arch as string] ?? process.arch,
      os: "linux",
      config: o.config,
      // Not packed, a layer's content is the layer.
      rootfs: { type: "layers", diff_ids: layers.map(({ digest }) => digest) },
    },
    types.config,
  );
  const manifest = await storeJson({ schemaVersion: 2, mediaType: types.manifest, config, layers }, types.manifest);
  const index = {
    schemaVersion: 2,
    manifests: [{ ...manifest, annotations: { "io.containerd.image.name": o.name } }],
  };
  await writeFile(join(layout, "oci-layout"), '{"imageLayoutVersion":"1.0.0"}');
  await writeFile(join(layout, "index.json"), JSON.stringify(index));
  const archive = join(o.folder, "image.tar");
  await execute("tar", ["-c", "-f", archive, "-C", layout, "oci-layout", "index.json", "blobs"]);
  return archive;
}

// Builds the dashboard into dist/, unless that is built from these files already.
import { hash } from "node:crypto";
import { glob, mkdir, readFile, rename, rm, writeFile } from "node:fs/promises";
import { join } from "node:path";
import { promisify } from "node:util";
import { brotliCompress, gzip, constants as zlib } from "node:zlib";
import { build } from "vite";

const folder = import.meta.dirname;
const dist = join(folder, "dist");
/** What the built files follow from. */
const sources = [
  "dashboard/{build.ts,index.html,package.json}",
  "dashboard/src/**/*.*",
  "clients/typescript/src/**/*.*",
];

/** A digest of all sources and of the packages' versions. */
async function digestSources(): Promise<string> {
  const root = join(folder, "..");
  const files = ["package-lock.json"];
  for await (const file of glob(sources, { cwd: root })) files.push(file);
  const digests = await Promise.all(
    files.toSorted().map(async (file) => `${file} ${hash("sha256", await readFile(join(root, file)))}`),
  );
  return hash("sha256", digests.join("\n"));
}

/** Each script and style sheet again as Brotli and gzip, since a server has no time to compress them that well. */
async function compressAssets(built: string): Promise<void> {
  for await (const file of glob("assets/*.{js,css}", { cwd: built })) {
    const path = join(built, file);
    const content = await readFile(path);
    const quality = { [zlib.BROTLI_PARAM_QUALITY]: zlib.BROTLI_MAX_QUALITY };
    await writeFile(`${path}.br`, await promisify(brotliCompress)(content, { params: quality }));
    await writeFile(`${path}.gz`, await promisify(gzip)(content, { level: zlib.Z_BEST_COMPRESSION }));
  }
}

// Whatever it is for whoever builds: React's own development build is half as large again.
process.env.NODE_ENV = "production";

const digest = await digestSources();
const known = await readFile(join(dist, "sources"), "utf8").catch(() => undefined);
if (known !== digest) {
  // Beside the old files, which may be served meanwhile.
  const next = join(folder, `dist.${process.pid}`);
  try {
    await build({
      root: folder,
      configFile: false,
      // Relative, so that the server may have a path prefix.
      base: "./",
      // It warns of each package that marks what isn't for servers.
      logLevel: "error",
      build: {
        outDir: next,
        emptyOutDir: true,
        modulePreload: { polyfill: false },
        target: "baseline-widely-available",
      },
    });
    await compressAssets(next);
    await writeFile(join(next, "sources"), digest);
    await mkdir(dist, { recursive: true });
    await rename(dist, `${next}.old`);
    await rename(next, dist);
  } finally {
    await rm(next, { recursive: true, force: true });
    await rm(`${next}.old`, { recursive: true, force: true });
  }
}

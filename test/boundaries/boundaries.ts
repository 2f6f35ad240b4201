import { globSync, readFileSync } from "node:fs";
import { builtinModules } from "node:module";
import { dirname, join, relative, resolve } from "node:path";

interface Manifest {
  name: string;
  workspaces?: string[];
  dependencies?: Record<string, string>;
  devDependencies?: Record<string, string>;
}

interface Package {
  folder: string;
  manifest: Manifest;
}

/** Static imports, exports from elsewhere, and dynamic imports of a literal, in the form that the formatter gives them. */
const importPattern = /^(?:import|export)\s(?:[^"';]*?\sfrom\s)?"([^"]+)"|\bimport\("([^"]+)"\)/gm;

/** Packages of the platform that only the launcher, or nobody, may import. */
const closed = new Set(["@sandgate/local", "@sandgate/facade"]);
const services = /^@sandgate\/(identity|workspace|image-registry|sandbox|telemetry)$/;
const tests = "@sandgate/test";

/**
 * Checks that each npm workspace below `root` lists exactly the packages it imports, stays within its own folder, and
 * that no service or the facade imports a service: only the launcher does. Answers one line for each violation.
 */
export function findViolations(root: string): string[] {
  const rootManifest = readManifest(root);
  const folders = globSync(rootManifest.workspaces ?? [], { cwd: root, exclude: ["**/node_modules"] }).map((folder) =>
    join(root, folder),
  );
  const packages = folders.map((folder): Package => ({ folder, manifest: readManifest(folder) }));
  const shared = new Set(Object.keys(rootManifest.devDependencies ?? {}));
  return packages.flatMap((each) => checkPackage(root, each, shared)).sort();
}

function checkPackage(root: string, { folder, manifest }: Package, shared: ReadonlySet<string>): string[] {
  const violations: string[] = [];
  const used = new Set<string>();
  const listed = new Set(Object.keys(manifest.dependencies ?? {}));
  const listedForTests = new Set(Object.keys(manifest.devDependencies ?? {}));
  const isTestPackage = manifest.name === tests;

  for (const file of globSync("**/*.ts", { cwd: folder, exclude: ["**/node_modules"] })) {
    const path = join(folder, file);
    const shown = relative(root, path);
    const inTest = isTestPackage || /\.(test|contract)\.ts$/.test(file);
    for (const specifier of findImports(readFileSync(path, "utf8"))) {
      if (specifier.startsWith(".")) {
        if (relative(folder, resolve(dirname(path), specifier)).startsWith("..")) {
          violations.push(`${shown} imports ${specifier}, which is outside of its package`);
        }
        continue;
      }
      const name = packageOf(specifier);
      if (name === undefined || name === manifest.name) continue;
      used.add(name);
      if (!mayImport(manifest.name, name, inTest)) violations.push(`${shown} may not import ${name}`);
      const known = listed.has(name) || (inTest && (listedForTests.has(name) || shared.has(name)));
      if (!known) violations.push(`${shown} imports ${name}, which its package.json does not list`);
    }
  }
  for (const name of [...listed, ...listedForTests]) {
    // Types belong to the package they describe.
    if (!used.has(name.replace(/^@types\//, ""))) {
      violations.push(`${relative(root, folder)}/package.json lists ${name}, which is not imported`);
    }
  }
  return violations;
}

function mayImport(importer: string, imported: string, inTest: boolean): boolean {
  if (imported === tests) return inTest;
  if (closed.has(imported)) return importer === "@sandgate/local" || importer === tests;
  if (services.test(imported)) return importer === "@sandgate/local" || importer === tests;
  return true;
}

function findImports(source: string): string[] {
  return [...source.matchAll(importPattern)].map((match) => match[1] ?? match[2] ?? "");
}

/** The package of an import, or undefined for one of Node's own modules. */
function packageOf(specifier: string): string | undefined {
  if (specifier.startsWith("node:") || builtinModules.includes(specifier)) return undefined;
  return specifier.split("/", specifier.startsWith("@") ? 2 : 1).join("/");
}

function readManifest(folder: string): Manifest {
  return JSON.parse(readFileSync(join(folder, "package.json"), "utf8")) as Manifest;
}

// What comes from others: each package's licence, its hash, and the list of all of them that goes with a release.
import { execFile } from "node:child_process";
import { readFile } from "node:fs/promises";
import { dirname, join } from "node:path";
import { fileURLToPath } from "node:url";
import { promisify } from "node:util";
import { Ajv } from "ajv";
import addFormats from "ajv-formats";
import { describe, expect, test } from "vitest";

interface LockedPackage {
  /** Where the package is installed under another name. */
  name?: string;
  version?: string;
  license?: string;
  integrity?: string;
  resolved?: string;
  link?: true;
  os?: string | string[];
  cpu?: string | string[];
  libc?: string | string[];
}

interface Sbom {
  specVersion: string;
  components: { purl: string; hashes?: object[] }[];
}

const root = join(import.meta.dirname, "../..");
const readJson = async (...path: string[]) => JSON.parse(await readFile(join(root, ...path), "utf8"));

/**
 * Licences that ask for no more than to be named, and MPL, which asks for changes of its own files, of which we make
 * none.
 */
const allowed = new Set([
  "0BSD",
  "Apache-2.0",
  "BSD-2-Clause",
  "BSD-3-Clause",
  "BlueOak-1.0.0",
  "CC0-1.0",
  "ISC",
  "MIT",
  "MIT-0",
  "MPL-2.0",
  "PSF-2.0",
  "Unlicense",
  "Zlib",
]);

const { packages } = (await readJson("package-lock.json")) as { packages: Record<string, LockedPackage> };
const locked = Object.entries(packages).filter(([path]) => path.startsWith("node_modules/"));
const external = locked.filter(([, { link }]) => !link);
/** Builds of tools for other systems than those that we test and run on are in the lock by name and version alone. */
const installable = external.filter(([, { os, cpu, libc }]) => {
  const fits = (wanted: string | string[] | undefined, ours: string[]) =>
    wanted === undefined || [wanted].flat().some((each) => ours.includes(each) || each.startsWith("!"));
  return fits(os, ["linux"]) && fits(cpu, ["x64", "arm64"]) && fits(libc, ["glibc"]);
});

describe("package-lock.json", () => {
  test("names no registry, so that packages come from the one that npm is set to", async () => {
    for (const [path, { resolved, link }] of locked) {
      // Only our own packages, which are links to folders, are resolved to anything.
      expect([path, resolved?.includes("://") ?? false]).toEqual([path, false]);
      expect([path, resolved !== undefined]).toEqual([path, link === true]);
    }
    expect(await readFile(join(root, "package-lock.json"), "utf8")).not.toMatch(/https?:\/\/registry\./);
  });

  test("has the hash of every package that is installed on the systems that we run on", () => {
    expect(installable.length).toBeGreaterThan(300);
    for (const [path, { integrity }] of installable)
      expect([path, integrity]).toEqual([path, expect.stringMatching(/^sha512-/)]);
  });
});

test("every package has a licence that we allow", async () => {
  const refused: Record<string, string> = {};
  for (const [path, { license }] of installable) {
    const found = license ?? (await licenceOf(path));
    // Of several, all have to be allowed, also where one could be chosen.
    const ids = found.split(/[() ]+|\bAND\b|\bOR\b/).filter((id) => id !== "");
    if (ids.length === 0 || !ids.every((id) => allowed.has(id))) refused[path] = found;
  }
  expect(refused).toEqual({});
});

/** From the package itself, whose older forms the lock leaves out. */
async function licenceOf(path: string): Promise<string> {
  const { license, licenses } = await readJson(path, "package.json");
  const all = license ?? licenses ?? [];
  return [all]
    .flat()
    .map((each: string | { type: string }) => (typeof each === "string" ? each : each.type))
    .join(" AND ");
}

test("npm run sbom lists every package in valid CycloneDX, without a network", async () => {
  const env = { ...process.env, npm_config_offline: "true" };
  const o = { cwd: root, env, maxBuffer: 2 ** 26 };
  const sbom: Sbom = JSON.parse((await promisify(execFile)("npm", ["run", "--silent", "sbom"], o)).stdout);
  expect(await validate(sbom)).toEqual([]);

  const listed = new Map(sbom.components.map(({ purl, hashes }) => [purl, hashes?.length ?? 0]));
  const wanted = external.map(([path, { name: own, version, integrity }]) => {
    const name = own ?? path.slice(path.lastIndexOf("node_modules/") + "node_modules/".length);
    return [`pkg:npm/${name.replace("@", "%40")}@${version}`, integrity ? 1 : 0] as const;
  });
  const missing = wanted.filter(([purl, hashes]) => listed.get(purl) !== hashes);
  expect(missing).toEqual([]);
});

/** What the schema of CycloneDX that the document names says against it. */
async function validate(sbom: Sbom): Promise<unknown[]> {
  const library = dirname(fileURLToPath(import.meta.resolve("@cyclonedx/cyclonedx-library/package.json")));
  const schemaOf = async (name: string) =>
    JSON.parse(await readFile(join(library, `res/schema/${name}.SNAPSHOT.schema.json`), "utf8"));
  const ajv = new Ajv({ strict: false, allErrors: true });
  addFormats.default(ajv);
  // ajv knows no formats of internationalized addresses.
  for (const format of ["idn-email", "iri-reference"]) ajv.addFormat(format, true);
  // These are referred to by their files' names.
  for (const name of ["spdx", "jsf-0.82"])
    ajv.addSchema(await schemaOf(name), `http://cyclonedx.org/schema/${name}.SNAPSHOT.schema.json`);
  const check = ajv.compile(await schemaOf(`bom-${sbom.specVersion}`));
  check(sbom);
  return check.errors ?? [];
}

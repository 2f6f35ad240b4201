import { execFile } from "node:child_process";
import { copyFile, mkdir, readdir, readFile, symlink } from "node:fs/promises";
import { dirname, join } from "node:path";
import { promisify } from "node:util";
import { test } from "@sandgate/test-support/test";
import { expect } from "vitest";
import { installClient } from "./packed-client.ts";

const execute = promisify(execFile);
const root = join(import.meta.dirname, "../..");
const build = join(root, "clients/typescript/build.ts");

test("the client as npm gets it runs without types, needs no package, and no Node.js in a browser", async ({
  folder,
}) => {
  const target = await installClient(folder);
  const program = 'import("@sandgate/client").then(({ Sandbox }) => console.log(typeof Sandbox.create))';
  const { stdout } = await execute(process.execPath, ["--no-strip-types", "-e", program], { cwd: folder });
  expect(stdout).toBe("function\n");

  const manifest = JSON.parse(await readFile(join(target, "package.json"), "utf8"));
  expect(manifest).not.toHaveProperty("dependencies");
  expect(manifest).not.toHaveProperty("private");
  const ofMachines = ["machine.js", "stored-login.js"];
  expect(manifest.imports["#machine"].browser.default).toBe("./machine.browser.js");
  for (const name of (await readdir(target)).filter((each) => each.endsWith(".js") && !ofMachines.includes(each))) {
    const text = await readFile(join(target, name), "utf8");
    const imported = [...text.matchAll(/from "([^"]+)"/g)].map(([, from]) => from);
    for (const from of imported) expect(from, name).toMatch(/^(\.\/[\w.-]+\.js|#machine)$/);
    expect(
      imported.some((from) => ofMachines.includes(from?.slice(2) ?? "")),
      name,
    ).toBe(false);
  }
});

test("the types of the client as npm gets it are those that its users see", async ({ folder }) => {
  await installClient(folder);
  await copyFile(join(import.meta.dirname, "programs/typed.ts"), join(folder, "typed.ts"));
  const compiler = join(root, "node_modules/.bin/tsc");
  const check = (...args: string[]) =>
    execute(compiler, ["--noEmit", "--strict", "--target", "es2022", ...args, "typed.ts"], { cwd: folder }).catch(
      (error: { stdout: string }) => error,
    );
  const browser = ["--lib", "esnext,dom,dom.iterable", "--types", ""];
  expect((await check("--module", "nodenext", "--exactOptionalPropertyTypes", ...browser)).stdout).toBe("");
  expect((await check("--module", "esnext", "--moduleResolution", "bundler", ...browser)).stdout).toBe("");
  for (const each of ["@types/node", "undici-types"]) {
    await mkdir(dirname(join(folder, "node_modules", each)), { recursive: true });
    await symlink(join(root, "node_modules", each), join(folder, "node_modules", each));
  }
  expect((await check("--module", "nodenext", "--lib", "esnext", "--types", "node")).stdout).toBe("");
});

test("the command line as npm gets it has what it needs, and runs without types", async ({ folder }) => {
  const dist = join(folder, "dist");
  await execute(process.execPath, [join(root, "clients/cli/build.ts"), dist]);
  const { stdout: packed } = await execute("npm", ["pack", "--json", "--pack-destination", folder], { cwd: dist });
  const [{ name, filename, files }] = JSON.parse(packed);
  expect(name).toBe("sandgate");
  expect(await readFile(join(dist, "README.md"), "utf8")).not.toMatch(/\]\((?!https?:)/);
  const outside = files.map(({ path }: { path: string }) => path).filter((path: string) => !path.startsWith("src/"));
  expect(outside.toSorted()).toEqual(["README.md", "package.json"]);

  // As npm lays it out, beside the packages that it names.
  const modules = join(folder, "node_modules");
  await mkdir(join(modules, "@sandgate"), { recursive: true });
  await execute("tar", ["-x", "-f", join(folder, filename), "-C", modules]);
  const manifest = JSON.parse(await readFile(join(modules, "package/package.json"), "utf8"));
  expect(Object.keys(manifest.dependencies)).toEqual(["@modelcontextprotocol/sdk", "@sandgate/client", "zod"]);
  await execute(process.execPath, [build, join(modules, "@sandgate/client")]);
  for (const each of ["@modelcontextprotocol", "zod"]) {
    await symlink(join(root, "node_modules", each), join(modules, each));
  }
  const program = join(modules, "package", manifest.bin.sandgate);
  const run = (...args: string[]) => {
    const env = { ...process.env, SANDGATE_URL: "http://127.0.0.1:1", SANDGATE_CONFIG: join(folder, "none") };
    return execute(process.execPath, ["--no-strip-types", program, ...args], { env }).then(
      ({ stdout }) => ({ code: 0, stdout, stderr: "" }),
      ({ code, stdout, stderr }) => ({ code, stdout, stderr }),
    );
  };
  expect((await run("--version")).stdout).toBe(`sandgate ${manifest.version}\n`);
  expect((await run("mcp", "--help")).stdout).toContain("usage: sandgate mcp");
  expect(await run("ps")).toMatchObject({ code: 1, stderr: expect.stringContaining("can't be reached") });
  // Each command's own files are there, with the packages that it needs.
  const commands = join(modules, "package/src/commands");
  const imports = (await readdir(commands)).map((file) => `await import(${JSON.stringify(join(commands, file))});`);
  expect(imports.length).toBeGreaterThan(10);
  await execute(process.execPath, ["--no-strip-types", "--input-type=module", "-e", imports.join("\n")]);
});

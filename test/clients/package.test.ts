import { execFile } from "node:child_process";
import { readdir, readFile } from "node:fs/promises";
import { join } from "node:path";
import { promisify } from "node:util";
import { test } from "@sandgate/test-support/test";
import { expect } from "vitest";

const execute = promisify(execFile);
const build = join(import.meta.dirname, "../../clients/typescript/build.ts");

test("the client as npm gets it runs without types, needs no package, and no Node.js in a browser", async ({
  folder,
}) => {
  const target = join(folder, "node_modules/@sandgate/client");
  await execute(process.execPath, [build, target]);
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

// The examples of docs/typescript.md and docs/cli.md, as they stand there.
import { execFile } from "node:child_process";
import { mkdir, symlink, writeFile } from "node:fs/promises";
import { dirname, join } from "node:path";
import { promisify } from "node:util";
import { Sandgate } from "@sandgate/client";
import { probeEngine } from "@sandgate/test-support/images";
import { requireServer } from "@sandgate/test-support/require";
import { createTempFolder } from "@sandgate/test-support/temp-folder";
import { afterAll, beforeAll, describe, expect, test } from "vitest";
import { startPlatform, type TestPlatform, withoutSettings } from "../platform/local.ts";
import { program } from "./command-line.ts";
import { blocksOf } from "./pages.ts";

const root = join(import.meta.dirname, "../..");
const execute = promisify(execFile);

describe.runIf(await requireServer("docker", probeEngine))("the examples of", () => {
  let platform: TestPlatform;
  let folder: { path: string; remove(): Promise<void> };
  let env: NodeJS.ProcessEnv;

  beforeAll(async () => {
    platform = await startPlatform();
    folder = await createTempFolder();
    const sandgate = await Sandgate.signIn({ url: platform.url, ...platform.admin });
    const { token } = await sandgate.apiTokens.create({ description: "docs" });
    env = {
      ...withoutSettings(process.env),
      PATH: `${dirname(program)}:${process.env.PATH}`,
      SANDGATE_URL: platform.url,
      SANDGATE_TOKEN: token,
      SANDGATE_CONFIG: join(folder.path, "login.json"),
      EMAIL: platform.admin.username,
      PASSWORD: platform.admin.password,
    };
    await mkdir(join(folder.path, "node_modules/@sandgate"), { recursive: true });
    await symlink(join(root, "clients/typescript"), join(folder.path, "node_modules/@sandgate/client"));
  });
  afterAll(async () => {
    await platform?.stop();
    await folder?.remove();
  });

  test("docs/typescript.md print what they say", async () => {
    const printed: string[] = [];
    for (const [i, block] of (await blocksOf("typescript.md", "ts")).entries()) {
      const file = join(folder.path, `example-${i}.mts`);
      await writeFile(file, block);
      printed.push((await execute(process.execPath, [file], { env })).stdout);
    }
    expect(printed).toEqual(["hello 3\nsome text\n", "default\n", "a b\n7\nstdout typed\n0\n"]);
  });

  test("docs/cli.md print what they say", async () => {
    const [, block = ""] = await blocksOf("cli.md", "sh");
    const { stdout } = await execute("sh", ["-euc", block], { env });
    expect(stdout).toMatch(/^box\nhello\nhello\ntyped\nbox\n[\s\S]*box\n$/);
  });
});

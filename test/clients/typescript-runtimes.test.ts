// The TypeScript client, as npm gets it, on other runtimes than Node.js.
import { execFile } from "node:child_process";
import { copyFile, writeFile } from "node:fs/promises";
import { join } from "node:path";
import { promisify } from "node:util";
import { Sandgate } from "@sandgate/client";
import { probeEngine } from "@sandgate/test-support/images";
import { installOnce } from "@sandgate/test-support/install";
import { requireServer } from "@sandgate/test-support/require";
import { createTempFolder } from "@sandgate/test-support/temp-folder";
import { afterAll, beforeAll, describe, expect, test } from "vitest";
import { startPlatform, type TestPlatform, withoutSettings } from "../platform/local.ts";
import { installClient } from "./packed-client.ts";

const execute = promisify(execFile);
const cache = join(import.meta.dirname, "../../.cache/runtimes");

/** Packages whose binaries come with them, so none is downloaded when they are installed. */
const runtimes = {
  deno: { packages: ["deno@2.9.6"], program: ".bin/deno", args: ["run", "--allow-all", "--no-prompt"] },
  bun: { packages: ["bun@1.4.5"], program: `@oven/bun-${process.platform}-${process.arch}/bin/bun`, args: ["run"] },
} as const;
type Runtime = keyof typeof runtimes;

/** Installs a runtime once. Returns its program. */
async function installRuntime(name: Runtime): Promise<string> {
  const { packages, program } = runtimes[name];
  const folder = await installOnce(join(cache, packages.join("+")), async (draft) => {
    await writeFile(join(draft, "package.json"), "{}");
    const install = ["install", "--ignore-scripts", "--no-audit", "--no-fund", "--fetch-retries=1", ...packages];
    await execute("npm", install, { cwd: draft, timeout: 300_000 });
  });
  const installed = join(folder, "node_modules", program);
  await execute(installed, ["--version"]);
  return installed;
}

const hasEngine = await requireServer("docker", probeEngine);
const found: Runtime[] = [];
for (const name of Object.keys(runtimes) as Runtime[]) {
  if (hasEngine && (await requireServer(name, () => installRuntime(name)))) found.push(name);
}

describe.runIf(found.length > 0)("the TypeScript client as npm gets it", () => {
  let platform: TestPlatform;
  let folder: Awaited<ReturnType<typeof createTempFolder>>;
  let env: NodeJS.ProcessEnv;

  beforeAll(async () => {
    [platform, folder] = await Promise.all([startPlatform(), createTempFolder()]);
    await installClient(folder.path);
    await copyFile(join(import.meta.dirname, "programs/use.ts"), join(folder.path, "use.ts"));
    const sandgate = await Sandgate.signIn({ url: platform.url, ...platform.admin });
    const { token } = await sandgate.apiTokens.create({ description: "test" });
    env = {
      ...withoutSettings(process.env),
      SANDGATE_URL: platform.url,
      SANDGATE_TOKEN: token,
      SANDGATE_CONFIG: join(folder.path, "login.json"),
      DENO_DIR: join(folder.path, "deno"),
    };
  });
  afterAll(async () => {
    await platform?.stop();
    await folder?.remove();
  });

  test.each(found)("runs on %s: commands, files, watches, terminals, ports and logs", async (name) => {
    const args = [...runtimes[name].args, "use.ts"];
    // It throws where something isn't as it should be.
    const ended = await execute(await installRuntime(name), args, { cwd: folder.path, env, timeout: 150_000 });
    expect(ended).toEqual({ stdout: "", stderr: "" });
  });
});

// The Python client in front of a real platform.
import { execFile } from "node:child_process";
import { existsSync } from "node:fs";
import { rename, rm } from "node:fs/promises";
import { join } from "node:path";
import { promisify } from "node:util";
import { Sandgate } from "@sandgate/client";
import { probeEngine } from "@sandgate/test-support/images";
import { requireServer } from "@sandgate/test-support/require";
import { afterAll, beforeAll, describe, expect, test } from "vitest";
import { startPlatform, type TestPlatform } from "../platform/local.ts";

const execute = promisify(execFile);
const client = join(import.meta.dirname, "../../clients/python");
const httpx = "0.28.1";
const folder = join(import.meta.dirname, "../../node_modules/.cache", `python-client-httpx-${httpx}`);
const python = join(folder, "bin/python");

/** Installs what the client needs once, into a folder of its own. */
async function installHttpx(): Promise<void> {
  if (existsSync(python)) return;
  await execute("python3", ["-c", "import sys; assert sys.version_info >= (3, 10)"]);
  const draft = `${folder}.${process.pid}`;
  try {
    await execute("python3", ["-m", "venv", draft]);
    await execute(join(draft, "bin/python"), ["-m", "pip", "install", "--quiet", `httpx==${httpx}`]);
    await rename(draft, folder).catch(() => {});
  } finally {
    await rm(draft, { recursive: true, force: true });
  }
}

const isHere = (await requireServer("docker", probeEngine)) && (await requireServer("python", installHttpx));

describe.runIf(isHere)("the Python client", () => {
  let platform: TestPlatform;
  let env: NodeJS.ProcessEnv;

  beforeAll(async () => {
    platform = await startPlatform();
    const sandgate = await Sandgate.signIn({ url: platform.url, ...platform.admin });
    const { token } = await sandgate.apiTokens.create({ description: "test" });
    const session = await sandgate.sessions.create(platform.admin);
    env = {
      ...process.env,
      PYTHONPATH: join(client, "src"),
      PYTHONDONTWRITEBYTECODE: "1",
      SANDGATE_URL: platform.url,
      SANDGATE_TOKEN: token,
      SESSION_TOKEN: session.accessToken,
    };
  });
  afterAll(() => platform?.stop());

  test("a program of its synchronous and its asynchronous half runs", async () => {
    const { stdout } = await execute(python, [join(client, "tests/program.py")], { env, timeout: 150_000 });
    expect(stdout).toBe("all is well\n");
  });

  test("its synchronous half is generated from the asynchronous one", async () => {
    const { stderr } = await execute(python, [join(client, "generate.py"), "--check"], { env });
    expect(stderr).toBe("");
  });
});

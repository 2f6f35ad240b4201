// The Python client in front of a real platform.
import { execFile } from "node:child_process";
import { join } from "node:path";
import { promisify } from "node:util";
import { Sandgate } from "@sandgate/client";
import { probeEngine } from "@sandgate/test-support/images";
import { requireServer } from "@sandgate/test-support/require";
import { afterAll, beforeAll, describe, expect, test } from "vitest";
import { startPlatform, type TestPlatform } from "../platform/local.ts";
import { installHttpx, python, pythonClient, pythonEnv } from "./python-client.ts";

const execute = promisify(execFile);
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
      ...pythonEnv,
      SANDGATE_URL: platform.url,
      SANDGATE_TOKEN: token,
      SESSION_TOKEN: session.accessToken,
    };
  });
  afterAll(() => platform?.stop());

  test("a program of its synchronous and its asynchronous half runs", async () => {
    const { stdout } = await execute(python, [join(pythonClient, "tests/program.py")], { env, timeout: 150_000 });
    expect(stdout).toBe("all is well\n");
  });

  test("its synchronous half is generated from the asynchronous one", async () => {
    const { stderr } = await execute(python, [join(pythonClient, "generate.py"), "--check"], { env });
    expect(stderr).toBe("");
  });
});

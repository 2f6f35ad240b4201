import { randomInt } from "node:crypto";
import { once } from "node:events";
import { type AddressInfo, createServer } from "node:net";
import { join } from "node:path";
import { setTimeout as delay } from "node:timers/promises";
import { probeEngine } from "@sandgate/test-support/images";
import { findFreePort, type RunningProcess, startProcess } from "@sandgate/test-support/process";
import { requireServer } from "@sandgate/test-support/require";
import { test } from "@sandgate/test-support/test";
import { until } from "@sandgate/test-support/until";
import { describe, expect } from "vitest";
import { createClient, expectStatus } from "../conformance/client.ts";
import { startPlatform } from "../platform/local.ts";

const root = join(import.meta.dirname, "../..");
let folder: string;
let port: string;

test.beforeEach(async ({ folder: own }) => {
  folder = own;
  port = String(await findFreePort());
});

/** Starts a program in the repository with these settings and no others, on the test's own port and folder. */
function start(command: string, args: readonly string[], settings: Record<string, string> = {}): RunningProcess {
  const { PATH, HOME, DOCKER_HOST } = process.env;
  const own = {
    SANDGATE_DATA: join(folder, "data"),
    SANDGATE_PORT: port,
    SANDGATE_ADMIN_PORT: "0",
    SANDGATE_PULL_PORT: "0",
  };
  const env = { PATH, HOME, ...(DOCKER_HOST && { DOCKER_HOST }), ...own, ...settings };
  return startProcess(command, args, { cwd: root, env });
}

// Without an engine `npm start` would install one.
describe.runIf(await requireServer("docker", probeEngine))("npm start", { timeout: 300_000 }, () => {
  test("prints nothing but its banner, and ends with npm", async () => {
    const started = start("npm", ["start"], { SANDGATE_TYPO: "1" });
    await until(() => expect(started.output()).toContain("Sandgate is ready at"));
    await until(async () => expect((await fetch(`http://127.0.0.1:${port}/healthz`)).status).toBe(200));
    // To npm alone, as a supervisor sends it.
    await started.stop();
    await expect(fetch(`http://127.0.0.1:${port}/healthz`)).rejects.toThrow();
    expect(started.output()).toContain("Ignored: SANDGATE_TYPO is not a setting");
    expect(started.output()).not.toContain('{"level"');
  });
});

describe.runIf(await requireServer("docker", probeEngine))(
  "npm start fails in one line when",
  { timeout: 300_000 },
  () => {
    /** Expects exit code 1, and one line on the terminal beside npm's own. */
    async function expectRefusal(settings: Record<string, string>, line: string | RegExp): Promise<void> {
      const started = start("npm", ["start"], settings);
      const code = await started.exited;
      const lines = started.output().split("\n");
      const shown = lines.filter((text) => text !== "" && !/^(>|npm (warn|notice))/.test(text));
      expect(shown).toEqual([expect.stringMatching(/^sandgate: /)]);
      expect(shown[0]).toMatch(line);
      expect(code).toBe(1);
    }

    test("the port is in use", async () => {
      const server = createServer().listen(0, "127.0.0.1");
      await once(server, "listening");
      const taken = String((server.address() as AddressInfo).port);
      try {
        await expectRefusal({ SANDGATE_PORT: taken }, `port ${taken} on 127.0.0.1 is in use`);
      } finally {
        server.close();
      }
    });

    test("a setting is bad", () => expectRefusal({ SANDGATE_SANDBOX_PIDS: "few" }, /SANDGATE_SANDBOX_PIDS .*few/));

    test("another platform is running on the same data, and leaves that undisturbed", async () => {
      const platform = await startPlatform();
      try {
        const { dataFolder } = platform;
        await expectRefusal({ SANDGATE_DATA: dataFolder }, `${dataFolder} is in use by another Sandgate`);
        expect((await fetch(`${platform.url}/readyz`)).status).toBe(200);
      } finally {
        await platform.stop();
      }
    });

    test("the engine that was named doesn't answer", () =>
      expectRefusal(
        { SANDGATE_RUNTIME: "docker:///nonexistent" },
        "no container engine answers at docker:///nonexistent",
      ));
  },
);

test("a first start that crashes at any time is completed by the next", async () => {
  const launcher = join(root, "deploy/local/src/main.ts");
  const password = "correct horse battery";
  for (let round = 1; round <= 3; round++) {
    const settings = { SANDGATE_DATA: join(folder, String(round)), SANDGATE_ADMIN_PASSWORD: password };
    const crashAfterMs = randomInt(2_000);
    const first = start(process.execPath, [launcher], settings);
    await delay(crashAfterMs);
    await first.kill();
    const second = start(process.execPath, [launcher], settings);
    try {
      const message = `round ${round}: crashed after ${crashAfterMs} ms`;
      await expect.poll(second.output, { message }).toContain("Sandgate is ready");
      const client = createClient(`http://127.0.0.1:${port}`);
      expectStatus(await client.post("/auth/login", { username: "admin@localhost", password }), 200);
    } finally {
      await second.kill();
    }
  }
});

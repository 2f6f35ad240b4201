// The conformance suite by the settings of whoever points it at a platform elsewhere.

import { execFile } from "node:child_process";
import { once } from "node:events";
import { readFile } from "node:fs/promises";
import { createServer } from "node:http";
import type { AddressInfo } from "node:net";
import { join } from "node:path";
import { promisify } from "node:util";
import { openTestEngine, probeEngine } from "@sandgate/test-support/images";
import { findFreePort } from "@sandgate/test-support/process";
import { probeRegistry, startRegistry } from "@sandgate/test-support/registry";
import { requireServer } from "@sandgate/test-support/require";
import { createTempFolder } from "@sandgate/test-support/temp-folder";
import { afterAll, beforeAll, describe, expect, test } from "vitest";
import { suiteSettings } from "../conformance/suite-settings.ts";
import { startPlatform, type TestPlatform, withoutSettings } from "../platform/local.ts";

const execute = promisify(execFile);
const root = join(import.meta.dirname, "../..");

const isAvailable = (await requireServer("docker", probeEngine)) && (await requireServer("registry", probeRegistry));

interface Results {
  numPassedTests: number;
  testResults: { assertionResults: { status: string; title: string }[] }[];
}

describe.runIf(isAvailable)("the conformance suite, of a platform that is running", () => {
  const closing = new AsyncDisposableStack();
  let platform: TestPlatform;
  let registry: string;
  let mail: string;

  beforeAll(async () => {
    registry = closing.adopt(await startRegistry(), (each) => each.stop()).host;
    closing.defer(removePulled);
    mail = `smtp://127.0.0.1:${await findFreePort()}`;
    const settings = { ...suiteSettings, SANDGATE_SMTP_URL: mail, SANDGATE_REGISTRY_ALLOW: registry };
    platform = closing.adopt(await startPlatform({ settings }), (each) => each.stop());
  });
  afterAll(() => closing.disposeAsync());

  /** Whoever points the suite at a platform has an engine of its own, which keeps what it pulled. */
  async function removePulled(): Promise<void> {
    const engine = openTestEngine();
    const pulled = (await engine.listImages()).filter(({ RepoTags, RepoDigests }) =>
      [...(RepoTags ?? []), ...(RepoDigests ?? [])].some((name) => name.includes(`/${registry.replace(":", "_")}/`)),
    );
    for (const { Id } of pulled) await engine.getImage(Id).remove({ force: true });
  }

  /** Which tests of these files passed and which were skipped, and what was said. */
  async function run(files: readonly string[], settings: Readonly<Record<string, string>>) {
    await using folder = await createTempFolder();
    const output = join(folder.path, "results.json");
    const env = {
      ...Object.fromEntries(
        Object.entries(withoutSettings(process.env)).filter(([name]) => !name.startsWith("VITEST")),
      ),
      SANDGATE_CONFORMANCE_URL: platform.url,
      SANDGATE_CONFORMANCE_USERNAME: platform.admin.username,
      SANDGATE_CONFORMANCE_PASSWORD: platform.admin.password,
      SANDGATE_CONFORMANCE_MAIL: mail,
      SANDGATE_CONFORMANCE_REGISTRY: registry,
      ...settings,
    };
    const paths = files.map((name) => `test/conformance/${name}.test.ts`);
    const args = [
      "run",
      "--no-file-parallelism",
      "--reporter=default",
      "--reporter=json",
      `--outputFile=${output}`,
      ...paths,
    ];
    const vitest = join(root, "node_modules/vitest/vitest.mjs");
    const { stdout, stderr } = await execute(process.execPath, [vitest, ...args], { cwd: root, env });
    const results: Results = JSON.parse(await readFile(output, "utf8"));
    const tests = results.testResults.flatMap(({ assertionResults }) => assertionResults);
    const titlesOf = (status: string) => tests.filter((each) => each.status === status).map(({ title }) => title);
    return { said: stdout + stderr, passed: titlesOf("passed"), skipped: titlesOf("skipped") };
  }

  // Three whole files, one after another.
  const patience = { timeout: 600_000 };

  test("runs by address, operator, mails and registry, and says what it leaves out", patience, async () => {
    const { said, passed, skipped } = await run(["audit-log", "common", "sandboxes"], {});
    expect(passed).toContain("provisioning answers immediately with the whole record");
    expect(skipped.toSorted()).toEqual([
      "a configured origin may call from a browser, others may not",
      "a workspace's quota is enforced",
      "apply to each credential separately",
      "deleting the workspace removes its containers",
      "waiting answers not ready, failed or conflict",
      "what a user, a workspace and the installation may have is capped",
      "what fails and what is created in an hour has limits",
    ]);
    expect(said).toContain("SANDGATE_CONFORMANCE_SETTINGS doesn't say");
    expect(said).toContain("the platform is running already, with settings of its own");
  });

  test("says which limits of the platform are too low", async () => {
    const headers = { "x-request-id": "1", "ratelimit-limit": "10", "content-type": "application/json" };
    const strict = createServer((_, response) => response.writeHead(200, headers).end("{}")).listen(0, "127.0.0.1");
    await once(strict, "listening");
    const { port } = strict.address() as AddressInfo;
    const output = await run(["workspaces"], { SANDGATE_CONFORMANCE_URL: `http://127.0.0.1:${port}` }).then(
      ({ said }) => said,
      ({ stdout, stderr }: { stdout: string; stderr: string }) => stdout + stderr,
    );
    expect(output).toContain("SANDGATE_SIGNIN_RATE_LIMIT is 10, and the suite needs 10000");
    strict.close();
  });

  test("leaves out less where the platform has the suite's settings", async () => {
    const { passed } = await run(["common"], { SANDGATE_CONFORMANCE_SETTINGS: "suite" });
    expect(passed).toContain("a configured origin may call from a browser, others may not");
  });
});

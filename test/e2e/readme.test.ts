import { execFile } from "node:child_process";
import { readFile } from "node:fs/promises";
import { dirname } from "node:path";
import { promisify } from "node:util";
import { probeEngine } from "@sandgate/test-support/images";
import { requireServer } from "@sandgate/test-support/require";
import { afterAll, beforeAll, describe, expect, test } from "vitest";
import { startPlatform, type TestPlatform } from "../platform/local.ts";

const run = promisify(execFile);

describe.runIf(await requireServer("docker", probeEngine))("the README's tour", { timeout: 300_000 }, () => {
  let platform: TestPlatform;
  beforeAll(async () => {
    platform = await startPlatform();
  });
  afterAll(() => platform?.stop());

  test("works line by line", async () => {
    const readme = await readFile(new URL("../../README.md", import.meta.url), "utf8");
    const [, tour = ""] = /<!-- tour: .*-->\n```sh\n([\s\S]*?)```/.exec(readme) ?? [];
    const script = tour
      .replace(/^base=.*$/m, `base=${platform.url}`)
      .replace(/^password=.*$/m, `password='${platform.admin.password}'`)
      .replaceAll("data/mail", platform.mailFolder)
      // A busy machine may take longer than a reader would wait.
      .replace("sleep 1", `until grep -qs token= ${platform.mailFolder}/*.eml; do sleep 0.2; done`)
      .replace(/timeout_seconds\\":60/, 'timeout_seconds\\":240')
      .replace("--max-time 6", "--max-time 15");
    const { stdout } = await run("bash", ["-eu", "-o", "pipefail", "-c", script], {
      cwd: dirname(platform.dataFolder),
    });
    expect(stdout).not.toContain('"error":{');
    expect(stdout).toContain('"state":"ready"');
    expect(stdout).toContain('"stdout":"hello from root\\n"');
    expect(stdout.match(/^written from outside$/gm)).toHaveLength(2);
    expect(stdout).toMatch(/"stream":"stdout","data":"[^"]+ UTC /);
    expect(stdout).toContain("event: metric");
    expect(stdout).toMatch(/^stopp(ing|ed)$/m);
    expect(stdout.trim().endsWith('{"success":true}')).toBe(true);
  });
});

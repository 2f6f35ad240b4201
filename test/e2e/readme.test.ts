import { execFile } from "node:child_process";
import { readFile, writeFile } from "node:fs/promises";
import { dirname, join } from "node:path";
import { promisify } from "node:util";
import { probeEngine } from "@sandgate/test-support/images";
import { requireServer } from "@sandgate/test-support/require";
import { afterAll, beforeAll, describe, expect, test } from "vitest";
import { startInTerminal } from "../clients/command-line.ts";
import { startPlatform, type TestPlatform, withoutSettings } from "../platform/local.ts";

const run = promisify(execFile);
const root = join(import.meta.dirname, "../..");

/** The lines of a page that a reader is asked to run. */
async function toursOf(page: string): Promise<string[]> {
  const text = await readFile(join(root, page), "utf8");
  return [...text.matchAll(/<!-- tour: .*-->\n```sh\n([\s\S]*?)```/g)].map(([, lines = ""]) => lines);
}

describe.runIf(await requireServer("docker", probeEngine))("the tour", { timeout: 300_000 }, () => {
  let platform: TestPlatform;
  beforeAll(async () => {
    platform = await startPlatform();
  });
  afterAll(() => platform?.stop());

  /** For this platform, and a machine so busy that all takes longer than a reader would wait. */
  const adapted = (tour: string) =>
    tour
      .replace(/^base=.*$/m, `base=${platform.url}`)
      .replace(/^password=.*$/m, `password='${platform.admin.password}'`)
      .replaceAll("data/mail", platform.mailFolder)
      .replace("sleep 1", `until grep -qs token= ${platform.mailFolder}/*.eml; do sleep 0.2; done`)
      .replace(/timeout_seconds\\":60/, 'timeout_seconds\\":240')
      .replace("--max-time 6", "--max-time 15");

  test("of the README works line by line, with the command line and with curl", async () => {
    const tours = await toursOf("README.md");
    expect(tours).toHaveLength(2);
    const script = join(platform.dataFolder, "tour.sh");
    await writeFile(script, tours.map(adapted).join("echo 'the second way'\n"));
    const env = {
      ...withoutSettings(process.env),
      TERM: "xterm",
      SANDGATE_URL: platform.url,
      SANDGATE_CONFIG: join(platform.dataFolder, "login.json"),
    };
    const reader = startInTerminal(`cd '${root}' && bash -eu -o pipefail '${script}'`, env);
    await reader.says("Email: ");
    reader.type(`${platform.admin.username}\n`);
    await reader.says("Password: ");
    reader.type(`${platform.admin.password}\n`);
    const { code, stdout } = await reader.ended;
    expect({ code, stdout }).toMatchObject({ code: 0 });
    const [byHand = "", withCurl = ""] = stdout.replaceAll("\r", "").split("the second way\n");
    expect(byHand).toMatch(/^hello from root$/m);
    expect(byHand.match(/^written from outside$/gm)).toHaveLength(2);
    expect(byHand).toMatch(/^serving \/www on port 8080$/m);
    expect(byHand).toMatch(/^memory: +\d/m);
    expect(byHand).toMatch(/^tour +ready .*purpose=tour/m);
    expect(byHand).toMatch(/^tour\n$/m);
    expect(withCurl).not.toContain('"error":{');
    expect(withCurl).toContain('"stdout":"hello from root\\n"');
    expect(withCurl).toContain("written with curl");
  });

  test("of docs/curl.md works line by line", async () => {
    const [tour = ""] = await toursOf("docs/curl.md");
    const { stdout } = await run("bash", ["-eu", "-o", "pipefail", "-c", adapted(tour)], {
      cwd: dirname(platform.dataFolder),
    });
    expect(stdout).not.toContain('"error":{');
    expect(stdout).toContain('"state":"ready"');
    expect(stdout).toContain('"stdout":"hello from root\\n"');
    expect(stdout.match(/^written from outside$/gm)).toHaveLength(3);
    expect(stdout).toMatch(/"stream":"stdout","data":"[^"]+ UTC /);
    expect(stdout).toContain("event: metric");
    expect(stdout).toMatch(/^stopp(ing|ed)$/m);
    expect(stdout.trim().endsWith('{"success":true}')).toBe(true);
  });
});

import { execFile } from "node:child_process";
import { writeFile } from "node:fs/promises";
import { createRequire } from "node:module";
import { join } from "node:path";
import { promisify } from "node:util";
import { probeEngine } from "@sandgate/test-support/images";
import { installOnce } from "@sandgate/test-support/install";
import { requireServer } from "@sandgate/test-support/require";
import { afterAll, beforeAll, describe, expect, onTestFinished, test, vi } from "vitest";
import { domain, openProgramHost, type ProgramHost } from "./program.ts";

/** What others have built on E2B's SDK, each as its users install it, and an SDK that connects in another way. */
const packages = ["@computesdk/e2b@1.7.52", "@e2b/code-interpreter@2.8.0", "older-e2b@npm:e2b@2.5.0"];
const folder = join(
  import.meta.dirname,
  "../../node_modules/.cache",
  `e2b-libraries-${packages.join("-").replaceAll("/", "-")}`,
);

/** Installs the packages once, into a folder of their own. */
const installPackages = () =>
  installOnce(folder, async (draft) => {
    await writeFile(join(draft, "package.json"), "{}");
    const flags = ["--ignore-scripts", "--no-audit", "--no-fund", "--fetch-retries=1"];
    await promisify(execFile)("npm", ["install", ...flags, ...packages], { cwd: draft });
  });

const isHere = (await requireServer("docker", probeEngine)) && (await requireServer("npm", installPackages));

describe.runIf(isHere)("packages on top of e2b, and an older one of it, unmodified", () => {
  let host: ProgramHost;
  const load = createRequire(join(folder, "package.json"));

  beforeAll(async () => {
    host = await openProgramHost();
  });
  afterAll(() => host?.close());

  test("@computesdk/e2b creates, runs, reads and writes, lists, finds and destroys", async () => {
    const { e2b } = load("@computesdk/e2b");
    const provider = e2b({ apiKey: host.env.E2B_API_KEY });
    const sandbox = await provider.sandbox.create({ envs: { COLOUR: "blue" }, metadata: { kind: "compute" } });
    const ran = await sandbox.runCommand("echo $COLOUR; pwd", { cwd: "/tmp" });
    expect(ran).toMatchObject({ stdout: "blue\n/tmp\n", exitCode: 0 });
    expect(await sandbox.runCommand("echo bad >&2; exit 3")).toMatchObject({ stderr: "bad\n", exitCode: 3 });
    await sandbox.filesystem.mkdir("/tmp/made");
    await sandbox.filesystem.writeFile("/tmp/made/file", "text");
    expect(await sandbox.filesystem.readFile("/tmp/made/file")).toBe("text");
    expect(await sandbox.filesystem.readdir("/tmp/made")).toMatchObject([{ name: "file", type: "file", size: 4 }]);
    await sandbox.filesystem.remove("/tmp/made");
    expect(await sandbox.filesystem.exists("/tmp/made")).toBe(false);
    expect(await sandbox.getUrl({ port: 3000 })).toBe(`https://3000-${sandbox.sandboxId}.e2b.test`);
    expect(await provider.sandbox.list()).toHaveLength(1);
    expect((await provider.sandbox.getById(sandbox.sandboxId)).sandboxId).toBe(sandbox.sandboxId);
    await sandbox.destroy();
    expect(await provider.sandbox.getById(sandbox.sandboxId)).toBeNull();
  });

  test("@e2b/code-interpreter does all but run code, with an image of the name that it asks for", async () => {
    const { Sandbox } = load("@e2b/code-interpreter");
    await expect(Sandbox.create()).rejects.toThrow("404");
    await host.operator.registerImage(host.baseReference, { name: "code-interpreter-v1" });
    const sandbox = await Sandbox.create();
    expect(await sandbox.commands.run("echo out")).toMatchObject({ stdout: "out\n", exitCode: 0 });
    await sandbox.files.write("file", "text");
    expect(await sandbox.files.read("file")).toBe("text");
    await expect(sandbox.runCode("1 + 1")).rejects.toThrow();
    expect(await sandbox.kill()).toBe(true);
  });

  test("e2b 2.5 creates, connects, runs and writes, and doesn't find what has ended", async () => {
    onTestFinished(() => void vi.unstubAllGlobals());
    vi.stubGlobal("fetch", openByDomain(host.platform.url));
    const { NotFoundError, Sandbox } = load("older-e2b");
    const { sandboxId } = await Sandbox.create("base", { envs: { COLOUR: "blue" } });
    const sandbox = await Sandbox.connect(sandboxId);
    expect(await sandbox.commands.run("echo $COLOUR")).toMatchObject({ stdout: "blue\n", exitCode: 0 });
    await sandbox.files.write("file", "text");
    expect(await sandbox.files.read("file")).toBe("text");
    expect(sandbox.getHost(3000)).toBe(`3000-${sandboxId}.e2b.test`);
    await sandbox.kill();
    await expect(Sandbox.connect(sandboxId)).rejects.toBeInstanceOf(NotFoundError);
  });
});

/** In place of a name server and a certificate of the domain, which SDKs before E2B_SANDBOX_URL rely on. */
function openByDomain(platformUrl: string): typeof fetch {
  const open = fetch;
  return (input, init) => {
    const request = new Request(input, init);
    const { host, pathname, search } = new URL(request.url);
    const [port, sandboxId] = host.replace(`.${domain}`, "").split("-");
    if (port !== "49983" || sandboxId === undefined) return open(request);
    const moved = new Request(`${platformUrl}/e2b/envd${pathname}${search}`, request);
    moved.headers.set("e2b-sandbox-id", sandboxId);
    return open(moved);
  };
}

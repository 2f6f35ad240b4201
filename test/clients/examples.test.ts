// The programs of examples/, run as users run them, in TypeScript and in Python.
import { spawn } from "node:child_process";
import { once } from "node:events";
import { mkdir, readFile, rm, symlink, writeFile } from "node:fs/promises";
import { createServer, type Server } from "node:http";
import type { AddressInfo } from "node:net";
import { networkInterfaces } from "node:os";
import { join } from "node:path";
import { Client } from "@modelcontextprotocol/sdk/client/index.js";
import { StdioClientTransport } from "@modelcontextprotocol/sdk/client/stdio.js";
import { type SandboxState, Sandgate } from "@sandgate/client";
import { buildFolderImage, openTestEngine, probeEngine, type TestImage } from "@sandgate/test-support/images";
import { addPython } from "@sandgate/test-support/program-images";
import { requireServer } from "@sandgate/test-support/require";
import { createTempFolder, type TempFolder } from "@sandgate/test-support/temp-folder";
import { until } from "@sandgate/test-support/until";
import { afterAll, beforeAll, describe, expect, test } from "vitest";
import { createPreviewClient } from "../conformance/preview-client.ts";
import { startPlatform, type TestPlatform, withoutSettings } from "../platform/local.ts";
import { installPythonTools, pythonEnv } from "./python.ts";

const root = join(import.meta.dirname, "../..");
const isHere = (await requireServer("docker", probeEngine)) && (await requireServer("python", installPythonTools));
const python = isHere ? await installPythonTools() : "";

/** Each example is there in both languages. */
const languages: readonly { language: string; program: string; fileOf(name: string): string }[] = [
  { language: "TypeScript", program: process.execPath, fileOf: (name) => `${name}.ts` },
  { language: "Python", program: python, fileOf: (name) => `${name.replace("-", "_")}.py` },
];

/** It ends at once when it is told to. */
const untilTerminated = ["sh", "-c", "trap 'exit 0' TERM; sleep 100000 & wait"];

describe.runIf(isHere)("the example", () => {
  let platform: TestPlatform;
  let folder: TempFolder;
  let image: TestImage;
  let sandgate: Sandgate;
  let env: NodeJS.ProcessEnv;
  /** On all addresses of this machine. */
  let server: Server;

  beforeAll(async () => {
    server = createServer((_, response) => response.end("here")).listen(0);
    await once(server, "listening");
    folder = await createTempFolder();
    await addPython(join(folder.path, "image"));
    image = await buildFolderImage(openTestEngine(), join(folder.path, "image"), { command: untilTerminated });
    // Fewer sandboxes than the batch would like to have, and no internet.
    const settings = { SANDGATE_WORKSPACE_MAX_SANDBOXES: "4", SANDGATE_SANDBOX_EGRESS_DENY: "0.0.0.0/0" };
    platform = await startPlatform({ settings });
    sandgate = await Sandgate.signIn({ url: platform.url, ...platform.admin });
    await sandgate.images.create({
      name: "python",
      image: image.reference,
      isDefault: true,
      memoryMb: 256,
      ttlSeconds: 3600,
    });
    const { token } = await sandgate.apiTokens.create({ description: "examples" });
    env = {
      ...withoutSettings(process.env),
      ...pythonEnv,
      SANDGATE_URL: platform.url,
      SANDGATE_TOKEN: token,
      SANDGATE_CONFIG: join(folder.path, "no-login"),
    };
  });
  afterAll(async () => {
    server?.close();
    await platform?.stop();
    await image?.remove();
    await folder?.remove();
  });

  /** Runs an example to its end. */
  async function run(program: string, file: string, ...args: string[]) {
    const child = spawn(program, [join("examples", file), ...args], { cwd: root, env });
    return follow(child).ended;
  }

  function follow(child: ReturnType<typeof spawn>) {
    let [stdout, stderr] = ["", ""];
    child.stdout?.setEncoding("utf8").on("data", (text) => {
      stdout += text;
    });
    child.stderr?.setEncoding("utf8").on("data", (text) => {
      stderr += text;
    });
    const ended = once(child, "close").then(([code]) => ({ code, stdout, stderr }));
    return { ended, stdout: () => stdout, kill: (signal: NodeJS.Signals) => child.kill(signal) };
  }

  /** The program has stopped its sandboxes, and what the quota counts has ended. */
  const expectNoneOf = async (purpose: string) => {
    const ofPurpose = (state: SandboxState) => sandgate.sandboxes.list({ labels: { purpose }, state });
    expect([...(await ofPurpose("provisioning")), ...(await ofPurpose("ready"))]).toEqual([]);
    await until(async () => expect(await ofPurpose("stopping")).toEqual([]));
  };

  describe.each(languages)("in $language", ({ program, fileOf }) => {
    test("of a code interpreter keeps what snippets made", async () => {
      const { code, stdout, stderr } = await run(program, fileOf("code-interpreter"));
      expect({ code, stderr }).toEqual({ code: 0, stderr: "" });
      expect(stdout.split("\n")).toEqual([
        ">>> prices = [3, 5, 8]",
        "",
        ">>> total = sum(prices); total",
        "16",
        ">>> prices[7]",
        "failed: Traceback (most recent call last):",
        '  File "<snippet>", line 1, in <module>',
        "IndexError: list index out of range",
        ">>> print(f'{total} for {len(prices)}')",
        "16 for 3",
        "",
      ]);
      await expectNoneOf("interpreter");
    });

    test("of a web server shares a link, and stops at Ctrl-C", async () => {
      const running = follow(spawn(program, [join("examples", fileOf("web-server"))], { cwd: root, env }));
      const link = await until(() => {
        const found = /http:\/\/\S+sandgate_link=\S+/.exec(running.stdout())?.[0];
        if (found === undefined) throw new Error(`no link in ${running.stdout()}`);
        return found;
      });
      const preview = createPreviewClient({ via: platform.url, url: link });
      const { pathname, search } = new URL(link);
      const { headers } = await preview.get(pathname + search);
      const cookie = headers["set-cookie"]?.[0]?.split(";")[0] ?? "";
      expect((await preview.get("/", { cookie })).text).toContain("Hello from a sandbox");
      const [, token = ""] = /X-Sandgate-Token: ([\w-]+)/.exec(running.stdout()) ?? [];
      expect((await preview.get("/", { "x-sandgate-token": token })).text).toContain("Hello from a sandbox");
      expect((await preview.get("/")).status).toBe(401);
      await until(() => expect(running.stdout()).toContain('"GET / HTTP/1.1" 200'));
      running.kill("SIGINT");
      expect(await running.ended).toMatchObject({ code: 0, stderr: "" });
      await expectNoneOf("preview");
    });

    test("of a batch does all jobs within the quota, and tells which failed", async () => {
      const { code, stdout, stderr } = await run(program, fileOf("batch"));
      // 100 // n for each n from 1 to 49, twice.
      const sum = 2 * Array.from({ length: 49 }, (_, i) => Math.floor(100 / (i + 1))).reduce((a, b) => a + b);
      expect(`${stderr}${stdout}`).toContain(`98 of 100 jobs succeeded; the sum of what they printed is ${sum}.\n`);
      expect(code).toBe(1);
      for (const job of [0, 50]) expect(stderr).toMatch(new RegExp(`^job ${job}: exit code 1: ZeroDivisionError`, "m"));
      expect(stderr.match(/^job /gm)).toHaveLength(2);
      expect(stderr).toMatch(/^One sandbox fewer: The workspace has used up its quota of sandboxes\.$/m);
      await expectNoneOf("batch");
    });

    test("of CI runs a folder's tests, which get nothing but the folder, and ends with their exit code", async () => {
      const change = join(folder.path, "change");
      await mkdir(join(change, "src"), { recursive: true });
      await writeFile(join(change, "src/answer.txt"), "42\n");
      await writeFile(join(change, "check"), hostileTests, { mode: 0o755 });
      await writeFile(join(folder.path, "secret"), "of the machine\n");
      await rm(join(change, "link"), { force: true });
      await symlink(join(folder.path, "secret"), join(change, "link"));
      const { port } = server.address() as AddressInfo;
      const { code, stdout, stderr } = await run(program, fileOf("ci"), change, `./check ${hostAddress()} ${port}`);
      expect({ code, stdout, stderr }).toEqual({
        code: 3,
        stdout: "42\nCI\nno secret\nnot reached\n",
        stderr: "failed\n",
      });
      await expectNoneOf("ci");
    });

    test("of CI ends tests that take too long, and is stopped when it is cancelled", async () => {
      const change = join(folder.path, "slow");
      await mkdir(change, { recursive: true });
      const late = await run(program, fileOf("ci"), change, "echo begun; exec sleep 1000", "1");
      expect(late).toMatchObject({ code: 124, stdout: "begun\n", stderr: expect.stringContaining("after 1 s") });
      const args = [join("examples", fileOf("ci")), change, "echo begun; exec sleep 1000"];
      const running = follow(spawn(program, args, { cwd: root, env }));
      await until(() => expect(running.stdout()).toBe("begun\n"));
      running.kill("SIGTERM");
      expect((await running.ended).code).not.toBe(0);
      await expectNoneOf("ci");
    });
  });

  test("of an editor's configuration gives an agent the tools of sandboxes", async () => {
    const { mcpServers } = JSON.parse(await readFile(join(root, "examples/mcp.json"), "utf8"));
    const { command, args, env: settings } = mcpServers.sandgate;
    expect(Object.keys(settings)).toEqual(["SANDGATE_URL", "SANDGATE_TOKEN"]);
    const editor = new Client({ name: "editor", version: "1" });
    // An editor starts it in the folder of a project.
    const inCheckout = command.replace("/path/to/checkout", root);
    const transport = { command: inCheckout, args, cwd: folder.path, env: env as Record<string, string> };
    await editor.connect(new StdioClientTransport(transport));
    const call = async (name: string, args: Record<string, unknown>) => {
      const { content } = await editor.callTool({ name, arguments: args });
      return (content as { text: string }[])[0]?.text;
    };
    await call("create_sandbox", { image: "python", name: "of-editor" });
    expect(await call("run_command", { sandbox: "of-editor", command: "python3 -c 'print(6 * 7)'" })).toContain("42\n");
    await call("stop_sandbox", { sandbox: "of-editor" });
    await editor.close();
  });
});

/** The tests of somebody who looks for what isn't theirs. */
const hostileTests = `#!/bin/sh
cat src/answer.txt
env | grep -o '^CI\\|^SANDGATE[A-Z_]*'
cat link 2>/dev/null || echo no secret
nc -w 2 "$1" "$2" -e true 2>/dev/null && echo reached || echo not reached
echo failed >&2
exit 3
`;

/** An address of this machine that others reach it at. */
function hostAddress(): string {
  const all = Object.values(networkInterfaces()).flatMap((each) => each ?? []);
  const found = all.find(({ family, internal }) => family === "IPv4" && !internal);
  if (!found) throw new Error("this machine has no address");
  return found.address;
}

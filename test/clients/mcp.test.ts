// `sandgate mcp` in front of a real platform, with the SDK's own client.
import { join } from "node:path";
import { Client } from "@modelcontextprotocol/sdk/client/index.js";
import { StdioClientTransport } from "@modelcontextprotocol/sdk/client/stdio.js";
import { Sandgate } from "@sandgate/client";
import { probeEngine } from "@sandgate/test-support/images";
import { requireServer } from "@sandgate/test-support/require";
import { afterAll, beforeAll, describe, expect, test } from "vitest";
import { type UsedPlatform, usePlatform } from "../platform/given.ts";
import { withoutSettings } from "../platform/local.ts";
import { program } from "./command-line.ts";

describe.runIf(await requireServer("docker", probeEngine))("sandgate mcp", () => {
  let platform: UsedPlatform;
  let sandgate: Sandgate;
  let client: Client;

  beforeAll(async () => {
    platform = await usePlatform();
    sandgate = await Sandgate.signIn({ url: platform.url, ...platform.admin });
    const { token } = await sandgate.apiTokens.create({ description: "mcp" });
    const env = {
      ...withoutSettings(process.env),
      SANDGATE_URL: platform.url,
      SANDGATE_TOKEN: token,
      SANDGATE_CONFIG: join(platform.mailFolder, "no-login"),
    };
    client = new Client({ name: "test", version: "1" });
    await client.connect(
      new StdioClientTransport({ command: program, args: ["mcp"], env: env as Record<string, string> }),
    );
  });
  afterAll(async () => {
    await client?.close();
    await platform?.stop();
  });

  async function call(name: string, args: Record<string, unknown>) {
    const result = await client.callTool({ name, arguments: args });
    const [first] = result.content as { type: string; text: string }[];
    return { text: first?.text ?? "", isError: result.isError ?? false };
  }

  test("has the tools, with their arguments", async () => {
    const { tools } = await client.listTools();
    const shown = tools.map(({ name, inputSchema }) => [name, Object.keys(inputSchema.properties ?? {}).toSorted()]);
    expect(Object.fromEntries(shown)).toEqual({
      create_sandbox: ["image", "name"],
      list_sandboxes: [],
      stop_sandbox: ["sandbox"],
      run_command: ["command", "cwd", "limit", "offset", "sandbox", "timeout_seconds"],
      read_file: ["limit", "offset", "path", "sandbox"],
      write_file: ["content", "path", "sandbox"],
      list_files: ["limit", "offset", "path", "sandbox"],
      open_port: ["port", "public", "sandbox"],
    });
  });

  test("an agent makes a sandbox, works in it, and stops it", async () => {
    const made = await call("create_sandbox", { image: "default", name: "agent" });
    expect(JSON.parse(made.text)).toMatchObject({ name: "agent", state: "ready" });
    expect(JSON.parse((await call("list_sandboxes", {})).text)).toMatchObject([{ name: "agent" }]);
    await call("write_file", { sandbox: "agent", path: "/tmp/new/a.txt", content: "hello" });
    expect(await call("read_file", { sandbox: "agent", path: "/tmp/new/a.txt" })).toMatchObject({ text: "hello" });
    expect((await call("list_files", { sandbox: "agent", path: "/tmp/new" })).text).toBe("a.txt  5\n");
    const command = { sandbox: "agent", command: "pwd; echo bad >&2; exit 4", cwd: "/tmp" };
    const { text } = await call("run_command", command);
    expect(text).toMatch(/^exit code 4\n/);
    expect(text).toContain("/tmp\n");
    expect(text).toContain("bad\n");
    await call("stop_sandbox", { sandbox: "agent" });
    expect((await sandgate.sandboxes.get("agent")).state).toMatch(/stop/);
  });

  test("cuts long output with the offset to go on from, ends what takes too long, and tells of errors", async () => {
    await call("create_sandbox", { name: "long" });
    const command = { sandbox: "long", command: "seq 1 10000; echo run >> /tmp/runs" };
    const first = await call("run_command", command);
    expect(first.text.length).toBeLessThan(30_200);
    const next = Number(/go on with offset (\d+)\]$/.exec(first.text)?.[1]);
    const second = await call("run_command", { ...command, offset: next });
    const parts = [first, second].map(({ text }) => text.slice(text.indexOf("\n") + 1).replace(/\n\[.*\]$/, ""));
    expect(parts.join("")).toBe(Array.from({ length: 10_000 }, (_, i) => `${i + 1}\n`).join(""));
    expect((await call("read_file", { sandbox: "long", path: "/tmp/runs" })).text).toBe("run\n");
    const many = { sandbox: "long", command: "yes | head -c 5000000; truncate -s 4G /tmp/big" };
    expect((await call("run_command", many)).text).toMatch(/\n\[4970000 more characters of 5000000; go on with/);
    const late = await call("run_command", { ...many, offset: 4_000_000 });
    expect(late.text).toMatch(/\n\[\d+ more characters of 5000000, which were not kept\]$/);
    const part = await call("read_file", { sandbox: "long", path: "/tmp/big", offset: 7 });
    expect(part.text).toBe(`${"\0".repeat(30_000)}\n[more of a file of 4294967296 bytes; go on with offset 30007]`);
    const slow = await call("run_command", { sandbox: "long", command: "echo begun; sleep 100", timeout_seconds: 1 });
    expect(slow).toMatchObject({ isError: true, text: expect.stringMatching(/^timed out.*\nbegun/) });
    expect(await call("read_file", { sandbox: "missing", path: "/a" })).toMatchObject({
      isError: true,
      text: expect.stringMatching(/^sandbox_not_found: .*\nhint: /),
    });
  });
});

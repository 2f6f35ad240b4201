import { randomBytes } from "node:crypto";
import { requireServer } from "@sandgate/test-support/require";
import {
  AuthenticationError,
  CommandExitError,
  FileNotFoundError,
  InvalidArgumentError,
  NotFoundError,
  Sandbox,
  SandboxError,
  SandboxNotFoundError,
  TemplateError,
  TimeoutError,
} from "e2b";
import { afterAll, beforeAll, describe, expect, test } from "vitest";
import { requireSandboxHost } from "../conformance/sandbox-host.ts";
import { askHost, domain, toKey, useProgramHost } from "./program.ts";
import { installPackage, runProgram } from "./python-package.ts";

const isAvailable = await requireSandboxHost();
const hasPython = isAvailable && (await requireServer("python", installPackage));

describe.runIf(isAvailable)("E2B's SDKs, unmodified", () => {
  let host: Awaited<ReturnType<typeof useProgramHost>>;
  let sandbox: Sandbox;

  beforeAll(async () => {
    host = await useProgramHost();
    sandbox = await Sandbox.create();
  });
  afterAll(() => host?.close());

  test("creates a sandbox, tells of it, and kills it", async () => {
    const made = await Sandbox.create("base", { metadata: { purpose: "tests" }, timeoutMs: 120_000 });
    expect(made.sandboxId).toMatch(/^[a-z0-9]{26,57}$/);
    const info = await made.getInfo();
    expect(info).toMatchObject({
      sandboxId: made.sandboxId,
      templateId: host.baseId,
      name: "base",
      metadata: { purpose: "tests" },
      state: "running",
      cpuCount: 1,
      memoryMB: 256,
    });
    expect(info.endAt.getTime() - info.startedAt.getTime()).toBe(120_000);
    expect(await made.isRunning()).toBe(true);
    expect(await made.kill()).toBe(true);
    expect(await made.kill()).toBe(false);
    expect(await made.isRunning()).toBe(false);
    await expect(made.commands.run("true")).rejects.toThrow("Sandbox is probably not running anymore");
  });

  test("runs commands, with what they print and how they end", async () => {
    const { exitCode, stdout, stderr } = await sandbox.commands.run("echo out; echo err >&2");
    expect({ exitCode, stdout, stderr }).toEqual({ exitCode: 0, stdout: "out\n", stderr: "err\n" });
    const failed = await sandbox.commands.run("echo before; exit 3").catch((error: unknown) => error);
    expect(failed).toBeInstanceOf(CommandExitError);
    expect(failed).toMatchObject({ exitCode: 3, stdout: "before\n", error: "exit status 3" });
    await expect(sandbox.commands.run("sleep 60", { timeoutMs: 700 })).rejects.toBeInstanceOf(TimeoutError);
  });

  test("reads and writes files, with what E2B tells of them", async () => {
    const { files } = sandbox;
    expect(await files.write("notes/one.txt", "first")).toMatchObject({ name: "one.txt", path: "/root/notes/one.txt" });
    expect(await files.read("notes/one.txt")).toBe("first");
    expect(await files.read("/root/notes/one.txt", { format: "bytes" })).toEqual(new TextEncoder().encode("first"));
    expect(await files.write("/tmp/empty", "")).toMatchObject({ path: "/tmp/empty" });
    expect(await files.read("/tmp/empty")).toBe("");
    const many = await files.write([
      { path: "/tmp/many/a", data: "a" },
      { path: "/tmp/many/b", data: new Blob(["bb"]) },
    ]);
    expect(many.map(({ path }) => path)).toEqual(["/tmp/many/a", "/tmp/many/b"]);
    expect(await files.exists("/tmp/many/b")).toBe(true);
    expect(await files.exists("/tmp/many/c")).toBe(false);
    await sandbox.commands.run("ln -s many/b /tmp/link; chmod 640 /tmp/many/a");
    expect(await files.getInfo("/tmp/many/a")).toMatchObject({
      name: "a",
      type: "file",
      size: 1,
      mode: 0o640,
      permissions: "-rw-r-----",
      owner: "root",
      group: "root",
      modifiedTime: expect.any(Date),
    });
    expect(await files.getInfo("/tmp/link")).toMatchObject({ type: "file", symlinkTarget: "/tmp/many/b" });
    expect((await files.list("/tmp/many")).map(({ name, type }) => [name, type])).toEqual([
      ["a", "file"],
      ["b", "file"],
    ]);
    await sandbox.commands.run("ln -s loop /tmp/many/loop; ln -s a/below /tmp/many/through");
    expect((await files.list("/tmp/many")).map(({ name }) => name)).toEqual(["a", "b"]);
    expect(await files.exists("/tmp/many/loop")).toBe(true);
    expect((await files.list("/root", { depth: 2 })).map(({ path }) => path)).toContain("/root/notes/one.txt");
    expect(await files.makeDir("/tmp/x/y/z")).toBe(true);
    expect(await files.makeDir("/tmp/x/y/z")).toBe(false);
    expect(await files.rename("/tmp/many/a", "/tmp/moved/here")).toMatchObject({ path: "/tmp/moved/here" });
    await files.remove("/tmp/x");
    await files.remove("/tmp/x");
    expect(await files.exists("/tmp/x")).toBe(false);
  });

  test("files are read and written as the user that is named, who owns what is made", async () => {
    const { files, commands } = sandbox;
    await commands.run("chown -R ada:ada /home/ada");
    expect(await files.write("mine/one", "of ada", { user: "ada" })).toMatchObject({ path: "/home/ada/mine/one" });
    expect(await files.read("~/mine/one", { user: "ada" })).toBe("of ada");
    expect(await files.getInfo("/home/ada/mine/one")).toMatchObject({ owner: "ada", group: "ada" });
    expect(await files.makeDir("made", { user: "ada" })).toBe(true);
    expect((await commands.run("stat -c %U /home/ada/mine /home/ada/made")).stdout).toBe("ada\nada\n");
    expect((await files.list("mine", { user: "ada" })).map(({ path }) => path)).toEqual(["/home/ada/mine/one"]);
    await files.write("/root/secret", "of root");
    await commands.run("chmod 700 /root");
    await expect(files.read("/root/secret", { user: "ada" })).rejects.toThrow(/EACCES|permission/i);
    await expect(files.write("/root/more", "x", { user: "ada" })).rejects.toThrow(/EACCES|permission/i);
    await expect(files.remove("/root/secret", { user: "ada" })).rejects.toThrow(/EACCES|permission/i);
    await expect(files.list("/root", { user: "ada" })).rejects.toThrow(/EACCES|permission/i);
    await expect(files.rename("/root/secret", "/tmp/secret", { user: "ada" })).rejects.toThrow(/EACCES|permission/i);
    expect(await files.read("/root/secret", { user: "user" })).toBe("of root");
    for (const call of [files.list, files.exists, files.remove]) {
      await expect(call.bind(files)("/tmp", { user: "ben" })).rejects.toBeInstanceOf(AuthenticationError);
    }
  });

  test("refuses files as E2B does", async () => {
    const { files } = sandbox;
    await expect(files.read("/no/such")).rejects.toBeInstanceOf(FileNotFoundError);
    await expect(files.list("/no/such")).rejects.toBeInstanceOf(FileNotFoundError);
    await expect(files.rename("/no/such", "/tmp/b")).rejects.toBeInstanceOf(FileNotFoundError);
    await expect(files.read("/tmp")).rejects.toBeInstanceOf(InvalidArgumentError);
    await expect(files.makeDir("/etc/passwd/x")).rejects.toBeInstanceOf(InvalidArgumentError);
    await expect(files.list("/etc/passwd")).rejects.toBeInstanceOf(InvalidArgumentError);
    await expect(files.read("/etc/passwd", { user: "ben" })).rejects.toBeInstanceOf(AuthenticationError);
    await expect(files.write("/tmp/m", "x", { metadata: { a: "b" } })).rejects.toBeInstanceOf(TemplateError);
  });

  test("files of 20 MiB come back equal, as streams and compressed too", async () => {
    const { files } = sandbox;
    const content = randomBytes(20 * 1024 * 1024);
    await files.write("/tmp/large", new Blob([content]));
    expect(Buffer.from(await files.read("/tmp/large", { format: "bytes" })).equals(content)).toBe(true);
    const stream = new Blob([content]).stream();
    await files.write("/tmp/streamed", stream as ReadableStream);
    const read = await files.read("/tmp/streamed", { format: "stream" });
    expect(Buffer.from(await new Response(read).arrayBuffer()).equals(content)).toBe(true);
    await files.write("/tmp/zipped", "text".repeat(100_000), { gzip: true });
    expect(await files.read("/tmp/zipped", { gzip: true })).toBe("text".repeat(100_000));
  });

  test("commands run in the background, are listed, get input, and are killed", async () => {
    const { commands } = sandbox;
    const cat = await commands.run("cat; echo done", { background: true, stdin: true });
    expect((await commands.list()).find(({ pid }) => pid === cat.pid)).toMatchObject({
      cmd: "/bin/sh",
      args: ["-l", "-c", "cat; echo done"],
      cwd: "/root",
    });
    await commands.sendStdin(cat.pid, "typed\n");
    await commands.closeStdin(cat.pid);
    expect(await cat.wait()).toMatchObject({ stdout: "typed\ndone\n", exitCode: 0 });

    const sleeper = await commands.run("sleep 1000", { background: true });
    await expect(commands.sendStdin(sleeper.pid, "x")).rejects.toThrow(SandboxError);
    await sleeper.disconnect();
    const again = await commands.connect(sleeper.pid);
    expect(await commands.kill(sleeper.pid)).toBe(true);
    expect(await again.wait().catch((error: unknown) => error)).toMatchObject({
      exitCode: -1,
      error: "signal: killed",
    });
    expect(await commands.kill(sleeper.pid)).toBe(false);
    await expect(commands.connect(sleeper.pid)).rejects.toBeInstanceOf(NotFoundError);
  });

  test("commands have the folder, user and variables that were asked for", async () => {
    const { commands } = await Sandbox.create({ envs: { COLOUR: "blue", SIZE: "big" } });
    const print = async (command: string, o?: object) => (await commands.run(command, o)).stdout.trim();
    expect(await print("echo $COLOUR $SIZE", { envs: { SIZE: "small" } })).toBe("blue small");
    expect(await print("pwd")).toBe("/root");
    expect(await print("pwd", { cwd: "/tmp" })).toBe("/tmp");
    expect(await print("id -un; pwd", { user: "ada" })).toBe("ada\n/home/ada");
    expect(await print("id -un", { user: "user" })).toBe("root");
    await expect(commands.run("true", { user: "ben" })).rejects.toBeInstanceOf(AuthenticationError);
    await expect(commands.run("true", { cwd: "/no/such" })).rejects.toBeInstanceOf(InvalidArgumentError);
  });

  test("terminals have their size, take input and are resized", async () => {
    let shown = "";
    const terminal = await sandbox.pty.create({
      cols: 80,
      rows: 24,
      onData: (data) => {
        shown += Buffer.from(data);
      },
    });
    const type = (text: string) => sandbox.pty.sendInput(terminal.pid, Buffer.from(text));
    await type("stty size\n");
    await expect.poll(() => shown).toContain("24 80");
    await sandbox.pty.resize(terminal.pid, { cols: 100, rows: 30 });
    await type("stty size\n");
    await expect.poll(() => shown).toContain("30 100");
    await type("exit\n");
    expect(await terminal.wait()).toMatchObject({ exitCode: 0 });
  });

  test("times to live are exact, lists are filtered, and what has ended is gone", async () => {
    const short = await Sandbox.create({ timeoutMs: 20_000, metadata: { kind: "short", "a b": "c&d" } });
    const { endAt } = await short.getInfo();
    await Sandbox.connect(short.sandboxId, { timeoutMs: 1_000 });
    expect((await short.getInfo()).endAt).toEqual(endAt);
    const listed = await Sandbox.list({ query: { metadata: { "a b": "c&d" } } }).nextItems();
    expect(listed.map(({ sandboxId }) => sandboxId)).toEqual([short.sandboxId]);
    expect(await Sandbox.list({ query: { metadata: { kind: "long" } } }).nextItems()).toEqual([]);
    expect(await Sandbox.list({ query: { state: ["paused"] } }).nextItems()).toEqual([]);
    const pages = Sandbox.list({ limit: 1 });
    const seen = new Set<string>();
    while (pages.hasNext) for (const { sandboxId } of await pages.nextItems()) seen.add(sandboxId);
    expect([...seen]).toEqual(expect.arrayContaining([short.sandboxId, sandbox.sandboxId]));
    const broken = short.commands.run("sleep 100").catch((error: unknown) => error);
    await short.setTimeout(2_000);
    await expect.poll(() => short.isRunning()).toBe(false);
    expect(await broken).toBeInstanceOf(TimeoutError);
    await expect(short.getInfo()).rejects.toBeInstanceOf(SandboxNotFoundError);
    await expect(Sandbox.connect(short.sandboxId)).rejects.toBeInstanceOf(SandboxNotFoundError);
  });

  test("refuses what it doesn't have, and says so", async () => {
    await expect(Sandbox.create("no-such-template")).rejects.toThrow("404");
    await expect(Sandbox.create({ apiKey: toKey("sgt_wrong") })).rejects.toBeInstanceOf(AuthenticationError);
    await expect(Sandbox.create({ allowInternetAccess: false })).rejects.toThrow("allow_internet_access");
    await expect(Sandbox.create({ lifecycle: { onTimeout: "pause" } })).rejects.toThrow("autoPause");
    await expect(Sandbox.create({ network: { denyOut: ["0.0.0.0/0"] } })).rejects.toThrow("network");
    await expect(sandbox.pause()).rejects.toThrow("501");
    await expect(sandbox.createSnapshot()).rejects.toThrow("501");
    await expect(Sandbox.create({ timeoutMs: 86_401_000 })).rejects.toThrow("timeout");
    await expect(Sandbox.connect("invented")).rejects.toBeInstanceOf(SandboxNotFoundError);
  });

  test("tells of what a sandbox uses", async () => {
    await expect.poll(() => sandbox.getMetrics()).not.toEqual([]);
    const [metric] = await sandbox.getMetrics();
    expect(metric).toMatchObject({ cpuCount: 1, memTotal: 256 * 1024 * 1024, timestamp: expect.any(Date) });
    expect(metric?.memUsed).toBeGreaterThan(0);
    const start = new Date();
    expect(await sandbox.getMetrics({ start, end: start })).toEqual([]);
    expect(await sandbox.getMetrics({ end: new Date(start.getTime() - 3_600_000) })).toEqual([]);
  });

  test("changes of a folder are told", async () => {
    await sandbox.files.makeDir("/tmp/watched");
    const seen: string[] = [];
    const watch = await sandbox.files.watchDir("/tmp/watched", ({ name, type }) => void seen.push(`${type} ${name}`));
    await sandbox.commands.run("cd /tmp/watched; echo a > one; chmod 600 one; mv one two; rm two");
    await expect.poll(() => seen).toContain("remove two");
    expect(seen).toEqual(expect.arrayContaining(["create one", "write one", "chmod one", "rename one", "create two"]));
    seen.length = 0;
    await sandbox.files.write("/tmp/watched/whole", "first");
    await sandbox.files.write("/tmp/watched/whole", "second");
    await sandbox.files.write("/tmp/watched/last", "");
    await expect.poll(() => seen).toContain("write last");
    expect(seen).toEqual(["create whole", "write whole", "write whole", "create last", "write last"]);
    await watch.stop();
    await expect(sandbox.files.watchDir("/no/such", () => {})).rejects.toBeInstanceOf(FileNotFoundError);
  });

  test("behind its domain a sandbox has a host for each of its ports", async () => {
    const info = await Sandbox.create({ network: { allowPublicTraffic: false } });
    const ask = (of: Sandbox, port: number, headers: Record<string, string> = {}) =>
      askHost(host.platform.url, of.getHost(port), "/index.html?a=b", { headers });
    const serve = "mkdir -p /www; echo served > /www/index.html; httpd -p 127.0.0.1:3000 -h /www";
    await sandbox.commands.run(serve);
    expect(await ask(sandbox, 3000)).toEqual({ status: 200, body: "served\n" });
    expect(await ask(sandbox, 3001)).toMatchObject({ status: 502, body: expect.stringContaining("port is not open") });
    expect(await askHost(host.platform.url, sandbox.getHost(3000), "/")).toEqual({ status: 200, body: "served\n" });
    expect(sandbox.trafficAccessToken).toBeUndefined();
    await info.commands.run(serve);
    expect((await ask(info, 3000)).status).toBe(403);
    expect((await ask(info, 3000, { "e2b-traffic-access-token": sandbox.sandboxId })).status).toBe(403);
    const token = { "e2b-traffic-access-token": info.trafficAccessToken ?? "" };
    expect(await ask(info, 3000, token)).toEqual({ status: 200, body: "served\n" });
    expect((await info.getInfo()).metadata).toEqual({});
    const list = await askHost(host.platform.url, `api.${domain}`, "/v2/sandboxes", {
      headers: { "x-api-key": host.operator.as.token },
    });
    expect(list.status).toBe(200);
    expect(list.body).toContain(info.sandboxId);
    expect((await askHost(host.platform.url, info.getHost(49_983), "/health")).status).toBe(401);
    await info.kill();
    expect((await ask(info, 3000, token)).status).toBe(502);
    expect((await askHost(host.platform.url, host.platform.url.slice(7), "/e2b/port/x")).status).toBe(502);
  });

  test.runIf(hasPython)("a program of both halves of the Python package runs", async () => {
    expect(await runProgram(host.env)).toBe("all is well\n");
  });
});

// The TypeScript client in front of a real platform.
import {
  CommandFailed,
  CommandTimedOut,
  Sandbox,
  SandboxNotFound,
  Sandgate,
  TimedOut,
  ValidationError,
} from "@sandgate/client";
import { probeEngine } from "@sandgate/test-support/images";
import { requireServer } from "@sandgate/test-support/require";
import { until } from "@sandgate/test-support/until";
import { afterAll, beforeAll, describe, expect, test } from "vitest";
import { type UsedPlatform, usePlatform } from "../platform/given.ts";

describe.runIf(await requireServer("docker", probeEngine))("the TypeScript client", () => {
  let platform: UsedPlatform;
  let sandgate: Sandgate;
  let settings: { url: string; token: string };
  let sandbox: Sandbox;

  beforeAll(async () => {
    platform = await usePlatform();
    sandgate = await Sandgate.signIn({ url: platform.url, ...platform.admin });
    const { token } = await sandgate.apiTokens.create({ description: "test" });
    settings = { url: platform.url, token };
    sandbox = await Sandbox.create("default", settings);
  });
  afterAll(() => platform?.stop());

  test("makes a sandbox that is ready, finds it again, lists it by its labels, and stops it", async () => {
    const states: string[] = [];
    const onProgress = ({ state }: { state: string }) => void states.push(state);
    const labels = { some_key: "some value" };
    const made = await Sandbox.create("default", {
      ...settings,
      name: "of-label",
      labels,
      ttlSeconds: 900,
      onProgress,
    });
    expect(made.record).toMatchObject({ state: "ready", labels, ttlSeconds: 900 });
    expect(states.at(-1)).toBe("ready");
    expect((await Sandbox.connect("of-label", settings)).id).toBe(made.id);
    const found: string[] = [];
    for await (const { id } of Sandbox.list({ ...settings, labels })) found.push(id);
    expect(found).toEqual([made.id]);
    await made.stop();
    expect((await made.refresh()).state).toMatch(/stopping|stopped/);
  });

  test("runs commands: output, exit code, input, folder, environment", async () => {
    const seen: string[] = [];
    const result = await sandbox.commands.run('echo "$A in $PWD"; cat; echo bad >&2; exit 3', {
      cwd: "/tmp",
      env: { A: "a_b" },
      stdin: "typed",
      onStdout: (text) => seen.push(text),
    });
    expect(result).toMatchObject({ stdout: "a_b in /tmp\ntyped", stderr: "bad\n", exitCode: 3, lostBytes: 0 });
    expect(seen.join("")).toBe(result.stdout);
    const failing = sandbox.commands.run(["sh", "-c", "echo out; exit 7"], { check: true });
    await expect(failing).rejects.toBeInstanceOf(CommandFailed);
    await expect(failing).rejects.toMatchObject({ code: "command_failed", exitCode: 7, stdout: "out\n" });
  });

  test("ends a command when its time is up, or when it is aborted", async () => {
    const slow = sandbox.commands.run("echo begun; sleep 1000", { timeoutMs: 1000 });
    await expect(slow).rejects.toBeInstanceOf(CommandTimedOut);
    await expect(slow).rejects.toMatchObject({ stdout: "begun\n" });

    const process = await sandbox.commands.start("exec sleep 1002");
    await expect(process.wait({ timeoutMs: 100 })).rejects.toBeInstanceOf(TimedOut);
    await process.kill();
    expect((await process.wait()).signal).toBe("SIGTERM");

    const controller = new AbortController();
    const stopped = sandbox.commands.run("echo begun; exec sleep 1001", {
      signal: controller.signal,
      onStdout: () => controller.abort(new Error("enough")),
    });
    await expect(stopped).rejects.toThrow("enough");
    const running = async () => (await sandbox.commands.list({ state: "running" })).length;
    await until(async () => expect(await running()).toBe(0));
  });

  test("files: written, read, listed, renamed, removed, and packed", async () => {
    const { files } = sandbox;
    await files.write("/tmp/f/a.txt", "text", { parents: true, mode: 0o600 });
    expect(await files.stat("/tmp/f/a.txt")).toMatchObject({ mode: "0600", size: 4, etag: expect.any(String) });
    const bytes = crypto.getRandomValues(new Uint8Array(60_000));
    const chunks = new Blob([bytes]).stream();
    await files.write("/tmp/f/b.bin", chunks);
    expect(await files.read("/tmp/f/b.bin", { format: "bytes" })).toEqual(bytes);
    expect(await files.read("/tmp/f/b.bin", { format: "bytes", offset: 10, length: 5 })).toEqual(bytes.slice(10, 15));
    expect((await files.list("/tmp/f")).map(({ name }) => name)).toEqual(["a.txt", "b.bin"]);
    await files.rename("/tmp/f/a.txt", "/tmp/f/c.txt");
    await files.chmod("/tmp/f/c.txt", "0640");
    expect(await files.exists("/tmp/f/a.txt")).toBe(false);
    const packed = await files.readArchive("/tmp/f");
    await files.makeDir("/tmp/g");
    await files.writeArchive("/tmp/g", packed);
    const unpacked = await files.list("/tmp/g", { depth: 5 });
    expect(unpacked.find(({ name }) => name === "c.txt")).toMatchObject({ mode: "0640" });
    await files.remove("/tmp/g", { recursive: true });
    expect(await files.exists("/tmp/g")).toBe(false);
  });

  test("a watch tells of changes until it is stopped", async () => {
    await sandbox.files.makeDir("/tmp/watched");
    const seen: unknown[] = [];
    const watch = await sandbox.files.watch("/tmp/watched", ({ type, path }) => seen.push(`${type} ${path}`));
    await sandbox.files.write("/tmp/watched/a", "1");
    await sandbox.files.rename("/tmp/watched/a", "/tmp/watched/b");
    await sandbox.files.remove("/tmp/watched/b");
    await until(() => expect(seen).toContain("delete /tmp/watched/b"));
    expect(seen).toContain("move /tmp/watched/a");
    watch.stop();
    await watch.closed;
  });

  test("ports: what listens, a preview with a link, requests and connections without one", async () => {
    await sandbox.files.write("/tmp/site/index.html", "hello", { parents: true });
    const server = await sandbox.commands.start(["httpd", "-f", "-p", "127.0.0.1:3000", "-h", "/tmp/site"]);
    await until(async () => {
      const found = (await sandbox.ports.listening()).find(({ port }) => port === 3000);
      expect(found).toMatchObject({ address: "127.0.0.1", processId: server.id });
    });
    expect(await (await sandbox.fetch(3000, "/index.html")).text()).toBe("hello");
    expect((await sandbox.fetch(3000, "/missing")).status).toBe(404);

    const { readable, writable } = await sandbox.ports.connect(3000);
    const writer = writable.getWriter();
    await writer.write(new TextEncoder().encode("GET /index.html HTTP/1.0\r\n\r\n"));
    expect(await new Response(readable).text()).toMatch(/^HTTP\/1\.[01] 200 OK[\s\S]*hello$/);

    const preview = await sandbox.ports.open(3000, { ttlSeconds: 600 });
    expect(await sandbox.ports.list()).toMatchObject([{ id: preview.id, port: 3000, public: false }]);
    expect((await sandbox.ports.link(preview.id)).url).toContain("sandgate_link=");
    await sandbox.ports.close(preview.id);
    expect(await sandbox.ports.list()).toEqual([]);
    await server.kill();
  });

  test("a terminal shows what is typed, has its size, and ends with its program", async () => {
    let shown = "";
    const onData = (data: Uint8Array) => {
      shown += new TextDecoder().decode(data);
    };
    const terminal = await sandbox.pty.create({ cols: 100, rows: 30, onData });
    terminal.write("stty size\n");
    await until(() => expect(shown).toContain("30 100"));
    await terminal.resize({ cols: 90, rows: 20 });
    terminal.write("stty size\n");
    await until(() => expect(shown).toContain("20 90"));
    const again: string[] = [];
    const second = await sandbox.pty.connect(terminal.id, {
      onData: (data) => again.push(new TextDecoder().decode(data)),
    });
    await until(() => expect(again.join("")).toContain("30 100"));
    terminal.write("exit 4\n");
    expect((await terminal.wait()).exitCode).toBe(4);
    expect((await second.wait()).exitCode).toBe(4);
  });

  test("errors have a class, a code, a hint and the request's id", async () => {
    const missing = Sandbox.connect("missing", settings);
    await expect(missing).rejects.toBeInstanceOf(SandboxNotFound);
    await expect(missing).rejects.toMatchObject({
      code: "sandbox_not_found",
      status: 404,
      retryable: false,
      hint: expect.stringContaining("GET /sandboxes"),
      requestId: expect.stringMatching(/^[\w-]{20,}$/),
    });
    const bad = sandgate.images.create({ name: "", image: "x", memoryMb: 1, ttlSeconds: 1 });
    await expect(bad).rejects.toBeInstanceOf(ValidationError);
    await expect(bad).rejects.toMatchObject({
      details: expect.arrayContaining([{ field: "body.name", issue: expect.any(String) }]),
    });
  });
});

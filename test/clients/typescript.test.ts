// The TypeScript client in front of a real platform.
import { CommandFailed, CommandTimedOut, Sandbox, SandboxNotFound, Sandgate, ValidationError } from "@sandgate/client";
import { probeEngine } from "@sandgate/test-support/images";
import { requireServer } from "@sandgate/test-support/require";
import { until } from "@sandgate/test-support/until";
import { afterAll, beforeAll, describe, expect, test } from "vitest";
import { startPlatform, type TestPlatform } from "../platform/local.ts";

describe.runIf(await requireServer("docker", probeEngine))("the TypeScript client", () => {
  let platform: TestPlatform;
  let sandgate: Sandgate;
  let settings: { url: string; token: string };
  let sandbox: Sandbox;

  beforeAll(async () => {
    platform = await startPlatform();
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

    const controller = new AbortController();
    const stopped = sandbox.commands.run("echo begun; exec sleep 1001", {
      signal: controller.signal,
      onStdout: () => controller.abort(new Error("enough")),
    });
    await expect(stopped).rejects.toThrow("enough");
    const running = async () => (await sandbox.commands.list({ state: "running" })).length;
    await until(async () => expect(await running()).toBe(0));
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

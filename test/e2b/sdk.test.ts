import { probeEngine } from "@sandgate/test-support/images";
import { requireServer } from "@sandgate/test-support/require";
import { CommandExitError, Sandbox, TimeoutError } from "e2b";
import { afterAll, beforeAll, describe, expect, test } from "vitest";
import { openProgramHost, type ProgramHost } from "./program.ts";

describe.runIf(await requireServer("docker", probeEngine))("the npm package e2b, unmodified", () => {
  let host: ProgramHost;
  let sandbox: Sandbox;

  beforeAll(async () => {
    host = await openProgramHost();
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
});

import { execFile } from "node:child_process";
import { existsSync } from "node:fs";
import { rename, rm } from "node:fs/promises";
import { join } from "node:path";
import { promisify } from "node:util";
import { probeEngine } from "@sandgate/test-support/images";
import { requireServer } from "@sandgate/test-support/require";
import { afterAll, beforeAll, describe, expect, test } from "vitest";
import { openProgramHost, type ProgramHost } from "./program.ts";

const execute = promisify(execFile);
/** What users install. */
const version = "2.63.0";
const folder = join(import.meta.dirname, "../../node_modules/.cache", `e2b-python-${version}`);
const python = join(folder, "bin/python");

/** Installs the package once, into a folder of its own. */
async function installPackage(): Promise<void> {
  if (existsSync(python)) return;
  await execute("python3", ["-c", "import sys; assert sys.version_info >= (3, 11)"]);
  const draft = `${folder}.${process.pid}`;
  try {
    await execute("python3", ["-m", "venv", draft]);
    await execute(join(draft, "bin/python"), ["-m", "pip", "install", "--quiet", `e2b==${version}`]);
    await rename(draft, folder).catch(() => {});
  } finally {
    await rm(draft, { recursive: true, force: true });
  }
}

const isHere = (await requireServer("docker", probeEngine)) && (await requireServer("python", installPackage));

describe.runIf(isHere)("the PyPI package e2b, unmodified", () => {
  let host: ProgramHost;

  beforeAll(async () => {
    host = await openProgramHost();
  });
  afterAll(() => host?.close());

  test("a program of its synchronous and its asynchronous half runs", async () => {
    const env = { ...process.env, ...host.env };
    const { stdout } = await execute(python, [join(import.meta.dirname, "program.py")], { env, timeout: 120_000 });
    expect(stdout).toBe("all is well\n");
  });
});

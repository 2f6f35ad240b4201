// The Python client as it is installed, in front of a real platform.
import { execFile } from "node:child_process";
import { readdir, writeFile } from "node:fs/promises";
import { join } from "node:path";
import { promisify } from "node:util";
import { Sandgate } from "@sandgate/client";
import { probeEngine } from "@sandgate/test-support/images";
import { requireServer } from "@sandgate/test-support/require";
import { createTempFolder } from "@sandgate/test-support/temp-folder";
import { afterAll, beforeAll, describe, expect, test } from "vitest";
import { type UsedPlatform, usePlatform } from "../platform/given.ts";
import { withoutSettings } from "../platform/local.ts";
import { blocksOf } from "./pages.ts";
import {
  buildPackage,
  installHttpx,
  installPythonTools,
  installWheel,
  pythonClient,
  pythonVersions,
} from "./python.ts";

const execute = promisify(execFile);
const tests = join(pythonClient, "tests");
const suites = (await readdir(tests)).filter((name) => name.startsWith("test_"));
const isHere = (await requireServer("docker", probeEngine)) && (await requireServer("python", installPythonTools));
const others = isHere ? await findOthers() : [];

/** The other Pythons that are here. */
async function findOthers(): Promise<string[]> {
  const { stdout: own } = await execute(await installPythonTools(), ["--version"]);
  const asked = pythonVersions.filter((version) => !own.startsWith(`Python ${version}.`));
  const found = await Promise.all(
    asked.map((version) => requireServer(`python${version}`, () => installHttpx(version))),
  );
  return asked.filter((_, i) => found[i]);
}

describe.runIf(isHere)("the Python client", () => {
  let platform: UsedPlatform;
  let folder: Awaited<ReturnType<typeof createTempFolder>>;
  let packages: Awaited<ReturnType<typeof buildPackage>>;
  let python: string;
  let env: NodeJS.ProcessEnv;

  beforeAll(async () => {
    [platform, folder] = await Promise.all([usePlatform(), createTempFolder()]);
    const tools = await installPythonTools();
    packages = await buildPackage(tools, folder.path);
    python = await installWheel({ python: tools, wheel: packages.wheel, folder: join(folder.path, "installed") });
    const sandgate = await Sandgate.signIn({ url: platform.url, ...platform.admin });
    const { token } = await sandgate.apiTokens.create({ description: "test" });
    env = {
      ...withoutSettings(process.env),
      PYTHONDONTWRITEBYTECODE: "1",
      SANDGATE_URL: platform.url,
      SANDGATE_TOKEN: token,
      SANDGATE_CONFIG: join(folder.path, "login.json"),
      ADMIN_USERNAME: platform.admin.username,
      ADMIN_PASSWORD: platform.admin.password,
      MAIL_FOLDER: platform.mailFolder,
    };
  });
  afterAll(async () => {
    await platform?.stop();
    await folder?.remove();
  });

  /** Runs Python, and returns what it prints. What it prints when it fails is the error's. */
  async function run(args: readonly string[], o: { by?: string; cwd?: string } = {}): Promise<string> {
    try {
      const { stdout } = await execute(o.by ?? python, args, { env, cwd: o.cwd ?? folder.path, timeout: 170_000 });
      return stdout;
    } catch (error) {
      const { stdout, stderr } = error as { stdout: string; stderr: string };
      throw new Error(`${args.join(" ")} failed:\n${stdout}\n${stderr}`, { cause: error });
    }
  }

  test("its wheel and its sdist have all that it needs, and it needs httpx alone", async () => {
    const list = "import sys, zipfile; print(*zipfile.ZipFile(sys.argv[1]).namelist(), sep='\\n')";
    const inWheel = await run(["-c", list, packages.wheel]);
    const needed = ["py.typed", "records.py", "_async/sandbox.py", "_sync/runtime.py"];
    expect(inWheel.split("\n")).toEqual(expect.arrayContaining(needed.map((name) => `sandgate/${name}`)));
    expect(inWheel).not.toContain("test");
    expect(await run(["-m", "tarfile", "-l", packages.sdist])).toMatch(/\/src\/sandgate\/py\.typed\s/);
    const requires = "from importlib.metadata import requires; print(requires('sandgate'))";
    expect(await run(["-c", requires])).toBe("['httpx<1,>=0.27']\n");
    const page = await run([
      "-c",
      "from importlib.metadata import metadata; print(metadata('sandgate')['Description'])",
    ]);
    expect(page).toMatch(/^# The Python client\n/);
    expect(page).not.toMatch(/\]\((?!https?:)/);
    // It is the installed one that is tested.
    expect(await run(["-c", "import sandgate; print(sandgate.__file__)"])).toContain(folder.path);
  });

  test("its synchronous half is generated from the asynchronous one", async () => {
    expect(await run([join(pythonClient, "generate.py"), "--check"])).toBe("");
  });

  test("its types are sound, and a program sees them", async () => {
    const cache = ["--cache-dir", join(folder.path, "mypy")];
    const checked = await run(["-m", "mypy", "--strict", ...cache, "-p", "sandgate", "-m", "typed_program"], {
      cwd: tests,
    });
    expect(checked).toMatch(/^Success/);
  });

  test("it is as ruff would have it", async () => {
    for (const asked of [["check"], ["format", "--check"]]) {
      await run(["-m", "ruff", ...asked, "--no-cache", pythonClient]);
    }
  });

  test.each(suites)("%s passes", async (suite) => {
    const cache = ["-p", "no:cacheprovider"];
    expect(await run(["-m", "pytest", "-q", ...cache, join(tests, suite)])).toMatch(/\d+ passed in /);
  });

  test("the examples of docs/python.md print what they say", async () => {
    env = { ...env, EMAIL: platform.admin.username, PASSWORD: platform.admin.password };
    const printed: string[] = [];
    for (const [i, block] of (await blocksOf("python.md", "python")).entries()) {
      const file = join(folder.path, `example_${i}.py`);
      await writeFile(file, block);
      printed.push(await run([file]));
    }
    expect(printed).toEqual([
      "hello 3\nsome text\n",
      "['0\\n', '1\\n', '2\\n']\n",
      "['default']\n",
      expect.stringMatching(/^\['a', 'b'\]\n7\nstdout typed\n0\nTrue\n(create \/tmp\/folder\n)?/),
    ]);
  });

  test.each(others)("it runs on Python %s", async (version) => {
    const installed = join(folder.path, `python-${version}`);
    const by = await installWheel({ python: await installHttpx(version), wheel: packages.wheel, folder: installed });
    expect(await run([join(tests, "smoke.py")], { by })).toBe("all is well\n");
  });
});

import { execFileSync } from "node:child_process";
import { access, copyFile, mkdir, readdir, readFile, readlink, symlink, writeFile } from "node:fs/promises";
import { join } from "node:path";
import { startProcess } from "@sandgate/test-support/process";
import { test } from "@sandgate/test-support/test";
import { until } from "@sandgate/test-support/until";
import { expect } from "vitest";

const checks = ["test/packages/audit.sh", "proto/check.sh", "services/sandbox/helper/check.sh"];

/**
 * Starts run.sh in a repository whose programs do nothing but what is given, in sh.
 *
 * @param o.path where other programs are, this process's own PATH unless given
 */
async function startRun(folder: string, o: { vitest?: string; check?: string; install?: string; path?: string }) {
  const add = async (path: string, text: string) => {
    await mkdir(join(folder, path, ".."), { recursive: true });
    await writeFile(join(folder, path), text, { mode: 0o755 });
  };
  await mkdir(join(folder, "test"));
  await copyFile(join(import.meta.dirname, "run.sh"), join(folder, "test/run.sh"));
  const bin = join(folder, "node_modules/.bin");
  for (const name of ["tsc", "biome", "knip"]) await add(`node_modules/.bin/${name}`, "#!/bin/sh\n");
  for (const name of checks) await add(name, o.check ?? "exit 0");
  // By the arguments of run.sh: the project is the third.
  const vitest = `#!/bin/sh\n: >"$3.began"\n${o.vitest ?? ""}\necho passed 1 >"$SANDGATE_TEST_COUNTS"\n`;
  await add("node_modules/.bin/vitest", vitest);
  await add(
    "deploy/local/prepare.sh",
    `prepare_packages() { node=true; }
prepare_engine() { :; }
engine() { :; }
default_image=none
is_root() { :; }
has_apt() { :; }
has_systemd() { false; }
refresh_apt_lists() { :; }
service() { :; }
say() { echo "$*"; }
install_debian() { echo "$@" >>installed; ${o.install ?? ""}
}
`,
  );
  const run = startProcess("sh", ["test/run.sh"], {
    cwd: folder,
    env: { PATH: `${bin}:${o.path ?? process.env.PATH}` },
  });
  return { run };
}

test("run.sh fails when no test was run", async ({ folder }) => {
  const { run } = await startRun(folder, { vitest: 'echo passed 0 >"$SANDGATE_TEST_COUNTS"; exit 0' });
  expect(await run.exited).toBe(1);
  expect(run.output()).toContain("FAILED   no test was run");
  expect(lastLine(run.output())).toBe("11 passed, 1 failed, 0 skipped");
});

const lastLine = (output: string) => output.trimEnd().split("\n").at(-1);

/** The ids of the processes that work in a folder. */
async function processesIn(folder: string): Promise<string[]> {
  const ids = (await readdir("/proc")).filter((name) => /^\d+$/.test(name));
  const works = await Promise.all(
    ids.map((id) =>
      readlink(`/proc/${id}/cwd`).then(
        (path) => path === folder,
        () => false,
      ),
    ),
  );
  return ids.filter((_, index) => works[index]);
}

test("run.sh counts checks and tests, and succeeds when none failed", async ({ folder }) => {
  const { run } = await startRun(folder, {});
  expect(await run.exited).toBe(0);
  expect(lastLine(run.output())).toBe("17 passed, 0 failed, 0 skipped");
});

test("run.sh fails when checks fail or a suite does outside of its tests, and goes on with the others", async ({
  folder,
}) => {
  const { run } = await startRun(folder, { vitest: '[ "$3" != engine ] || exit 1', check: "exit 1" });
  expect(await run.exited).toBe(1);
  expect(run.output()).toContain("FAILED   the suites of engine, outside of what is counted, see above");
  expect(lastLine(run.output())).toBe("9 passed, 8 failed, 0 skipped");
});

test.skipIf(process.platform !== "linux").for(["SIGTERM", "SIGINT", "SIGHUP"] as const)(
  "%s ends run.sh and all that it has started",
  async (signal, { folder }) => {
    const { run } = await startRun(folder, { vitest: "sleep 600", check: "sleep 600" });
    // The second of the two that run at a time.
    await until(() => access(join(folder, "kubernetes.began")));
    expect((await processesIn(folder)).length).toBeGreaterThan(4);
    run.child.kill(signal);
    expect(await run.exited).toBe(1);
    expect(lastLine(run.output())).toMatch(/^\d+ passed, 1 failed, 0 skipped$/);
    expect(await processesIn(folder)).toEqual([]);
  },
);

test("run.sh installs each package by itself where one can't be had", async ({ folder }) => {
  // A machine without what the packages are for.
  const tools = ["sh", "awk", "cat", "dirname", "find", "grep", "mkdir", "mktemp", "rm", "setsid", "tee"];
  await mkdir(join(folder, "tools"));
  for (const tool of tools) {
    const path = execFileSync("sh", ["-c", `command -v ${tool}`], { encoding: "utf8" }).trim();
    await symlink(path, join(folder, "tools", tool));
  }
  const install = 'case " $* " in *" chromium "*) return 1 ;; esac';
  const { run } = await startRun(folder, { install, path: join(folder, "tools") });
  expect(await run.exited).toBe(0);
  const [together = "", ...alone] = (await readFile(join(folder, "installed"), "utf8")).trimEnd().split("\n");
  expect(together.split(" ")).toEqual(expect.arrayContaining(["docker-registry", "chromium", "python3-venv", "fish"]));
  expect(alone).toEqual(together.split(" "));
  expect(run.output()).toContain("suites that need chromium will be skipped");
  expect(run.output()).not.toContain("suites that need fish will be skipped");
});

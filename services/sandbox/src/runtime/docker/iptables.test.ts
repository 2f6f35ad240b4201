import { chmodSync, readFileSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import { test } from "@sandgate/test-support/test";
import { afterEach, expect, vi } from "vitest";
import { runIptables } from "./iptables.ts";

let calls: string;

test.beforeEach(({ folder }) => {
  calls = join(folder, "calls");
  writeFileSync(calls, "");
  vi.stubEnv("PATH", `${folder}:${process.env.PATH}`);
});
afterEach(() => {
  vi.unstubAllEnvs();
});

/** Programs of iptables that fail so often in that way, then print what they were given. */
function install(folder: string, o: { failures: number; status: number; message: string }): void {
  const script = `#!/bin/sh
echo call >> ${calls}
if [ $(wc -l < ${calls}) -le ${o.failures} ]; then echo "${o.message}" >&2; exit ${o.status}; fi
echo "$@"; cat`;
  for (const name of ["iptables-save", "iptables-restore"]) {
    writeFileSync(join(folder, name), script);
    chmodSync(join(folder, name), 0o755);
  }
}

const countCalls = () => readFileSync(calls, "utf8").length / "call\n".length;

test("what changes rules reads them from its input, once it has the lock that all its users share", async ({
  folder,
}) => {
  install(folder, { failures: 0, status: 0, message: "" });
  expect(await runIptables("iptables-restore", ["--noflush"], "rules\n")).toBe("-w 5 --noflush\nrules\n");
});

test("a failure that passes is tried again", async ({ folder }) => {
  install(folder, { failures: 2, status: 4, message: "iptables: Resource temporarily unavailable." });
  expect(await runIptables("iptables-save", ["-t", "mangle"])).toBe("-t mangle\n");
  expect(countCalls()).toBe(3);
});

test("one that persists is reported with its reason", async ({ folder }) => {
  install(folder, { failures: 99, status: 4, message: "Another app is currently holding the xtables lock." });
  await expect(runIptables("iptables-save", ["-t", "mangle"])).rejects.toMatchObject({
    reason: "ISOLATION_UNAVAILABLE",
    message: "iptables-save could not be run: Another app is currently holding the xtables lock.",
  });
  expect(countCalls()).toBe(4);
});

test("a refusal is reported at once", async ({ folder }) => {
  install(folder, { failures: 99, status: 2, message: "Bad argument" });
  await expect(runIptables("iptables-save", ["-t", "mangle"])).rejects.toMatchObject({
    reason: "ISOLATION_UNAVAILABLE",
  });
  expect(countCalls()).toBe(1);
});

test("a missing iptables is reported at once", async () => {
  vi.stubEnv("PATH", "/nowhere");
  await expect(runIptables("iptables-save", ["-t", "mangle"])).rejects.toThrow("it is not installed");
});

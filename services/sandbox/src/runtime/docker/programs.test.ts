import { existsSync, readFileSync } from "node:fs";
import { join } from "node:path";
import { test } from "@sandgate/test-support/test";
import { expect } from "vitest";
import { runProgram } from "./programs.ts";

const timeoutMs = 60_000;
const shell = (script: string, ...args: string[]) => runProgram("sh", ["-c", script, ...args], { timeoutMs });

test("tells what was printed, and how the program ended", async () => {
  expect(await shell('echo "$0"; echo oops >&2; exit 3', 'it\'s\n$HOME `a` \\ "b"')).toEqual({
    status: 3,
    stdout: 'it\'s\n$HOME `a` \\ "b"\n',
    stderr: "oops\n",
  });
  expect(await runProgram("cat", [], { input: "one\n$two\n", timeoutMs })).toMatchObject({ stdout: "one\n$two\n" });
  expect(await runProgram("cat", [], { timeoutMs })).toEqual({ status: 0, stdout: "", stderr: "" });
  expect(await shell("kill -9 $$")).toMatchObject({ status: 137 });
  expect(await runProgram("no-such-program", [], { timeoutMs })).toMatchObject({ status: 127 });
});

test("takes megabytes, either way, and many at once", async () => {
  const input = "0123456789abcde\n".repeat(200_000);
  const copies = await Promise.all(Array.from({ length: 8 }, () => runProgram("cat", [], { input, timeoutMs })));
  expect(copies.map(({ stdout }) => stdout === input)).toEqual(Array(8).fill(true));
});

test("a program that prints without an end is given up, and the next one runs", async () => {
  for (const redirected of ["", ">&2"]) await expect(shell(`yes ${redirected}`)).rejects.toThrow("sh printed too much");
  expect(await shell("echo on")).toMatchObject({ stdout: "on\n" });
});

test("what takes too long ends, with all that it has started, and the next one runs", async ({ folder }) => {
  const started = join(folder, "started");
  const lasting = ["-c", `(sleep 1000 & echo $! >${started}.new; mv ${started}.new ${started}); sleep 1000`];
  const leaving = new AbortController();
  const left = runProgram("sh", lasting, { timeoutMs, signal: leaving.signal });
  const refused = expect(left).rejects.toThrow("left");
  await expect.poll(() => existsSync(started)).toBe(true);
  leaving.abort(new Error("left"));
  await refused;
  const pid = readFileSync(started, "utf8").trim();
  const isRunning = () =>
    existsSync(`/proc/${pid}`) && !/^State:\s+Z/m.test(readFileSync(`/proc/${pid}/status`, "utf8"));
  await expect.poll(isRunning).toBe(false);
  await expect(runProgram("sleep", ["1000"], { timeoutMs: 100 })).rejects.toMatchObject({ name: "TimeoutError" });
  expect(await shell("echo next")).toMatchObject({ stdout: "next\n" });
});

test("a shell that is killed costs the program that it ran", async () => {
  await expect(shell("kill -9 $PPID; sleep 1000")).rejects.toThrow("has ended");
  expect(await shell("echo next")).toMatchObject({ stdout: "next\n" });
});

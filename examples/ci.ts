// Runs the tests of a pull request that nobody has read yet: node ci.ts FOLDER COMMAND [SECONDS]
// The folder goes into a sandbox of its own, nothing of this machine or its environment does, and nothing comes out but
// output and the exit code, which this program ends with; 124 when the time is up.
import { spawn } from "node:child_process";
import { once } from "node:events";
import { CommandTimedOut, Sandbox } from "@sandgate/client";

const [folder, command, seconds = "600"] = process.argv.slice(2);
if (folder === undefined || command === undefined) throw new Error("usage: node ci.ts FOLDER COMMAND [SECONDS]");
const limitSeconds = Number(seconds);

// A job that is cancelled stops its sandbox, too. If this program is killed, the sandbox ends after `ttlSeconds`.
const cancelled = new AbortController();
for (const name of ["SIGINT", "SIGTERM"] as const) process.once(name, () => cancelled.abort(new Error(`${name} came`)));
const { signal } = cancelled;

await using sandbox = await Sandbox.create("python", {
  labels: { purpose: "ci" },
  ttlSeconds: limitSeconds + 300,
  signal,
});
await sandbox.files.makeDir("/tmp/work");
const tar = spawn("tar", ["-c", "-C", folder, "."], { stdio: ["ignore", "pipe", "inherit"] });
const [[code]] = await Promise.all([
  once(tar, "close"),
  sandbox.files.writeArchive("/tmp/work", tar.stdout, { signal }),
]);
if (code !== 0) throw new Error(`${folder} could not be read`);

try {
  const { exitCode } = await sandbox.commands.run(command, {
    cwd: "/tmp/work",
    env: { CI: "true" },
    timeoutMs: limitSeconds * 1000,
    signal,
    onStdout: (text) => process.stdout.write(text),
    onStderr: (text) => process.stderr.write(text),
  });
  process.exitCode = exitCode;
} catch (error) {
  if (!(error instanceof CommandTimedOut)) throw error;
  console.error(`The tests were ended after ${limitSeconds} s.`);
  process.exitCode = 124;
}

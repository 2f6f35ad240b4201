// A hundred jobs in a few sandboxes: each sandbox takes the next job until none is left.
import { CommandTimedOut, Sandbox } from "@sandgate/client";

const sandboxesAtOnce = 8;
const jobTimeoutMs = 60_000;
/** Two of these fail: they divide by zero. */
const jobs = Array.from({ length: 100 }, (_, n) => ({
  name: `job ${n}`,
  command: ["python3", "-c", `print(100 // (${n} % 50))`],
}));

const waiting = [...jobs];
const results = new Map<string, { exitCode: number | null; stdout: string; stderr: string }>();

async function work(): Promise<void> {
  await using sandbox = await Sandbox.create("python", { labels: { purpose: "batch" }, ttlSeconds: 3600 });
  for (let job = waiting.shift(); job !== undefined; job = waiting.shift()) {
    const result = sandbox.commands.run(job.command, { timeoutMs: jobTimeoutMs }).catch((error: unknown) => {
      if (error instanceof CommandTimedOut) return error;
      throw error;
    });
    const { exitCode, stdout, stderr } = await result;
    results.set(job.name, { exitCode, stdout, stderr });
  }
}

// A sandbox that the quota doesn't allow, or that ends early, leaves its jobs to the others.
const workers = await Promise.allSettled(Array.from({ length: sandboxesAtOnce }, work));
const lost = workers.filter((worker) => worker.status === "rejected");
for (const { reason } of lost) console.error(`One sandbox fewer: ${reason.message}`);

const failed = jobs.filter(({ name }) => results.get(name)?.exitCode !== 0);
for (const { name } of failed) {
  const result = results.get(name);
  console.error(
    `${name}: ${result ? `exit code ${result.exitCode}: ${result.stderr.trim().split("\n").at(-1)}` : "not run"}`,
  );
}
const sum = [...results.values()].reduce((total, { stdout }) => total + Number(stdout), 0);
console.log(`${jobs.length - failed.length} of ${jobs.length} jobs succeeded; the sum of what they printed is ${sum}.`);
process.exitCode = failed.length > 0 ? 1 : 0;

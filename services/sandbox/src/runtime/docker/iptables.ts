import { type ExecFileException, execFile } from "node:child_process";
import { setTimeout as delay } from "node:timers/promises";
import { type Backoff, backoffMs } from "@sandgate/kit/base/backoff";
import { DomainError } from "@sandgate/kit/base/domain-error";

/** How long iptables waits for the lock that all its users share. */
const lockWaitSeconds = 5;
const timeoutMs = 10_000;
const attempts = 4;
const retry: Backoff = { firstMs: 100, lastMs: 1_000 };

/** iptables' exit status when the kernel or the lock was busy (its RESOURCE_PROBLEM). */
const busyStatus = 4;

/**
 * Runs iptables, ip6tables or the `-restore` of one with this input, and answers what it printed. A failure that may
 * pass is tried again for a few seconds. Throws ISOLATION_UNAVAILABLE.
 */
export async function runIptables(command: string, args: readonly string[], input = ""): Promise<string> {
  for (let attempt = 1; ; attempt++) {
    const { error, stdout, stderr } = await run(command, ["-w", String(lockWaitSeconds), ...args], input);
    if (!error) return stdout;
    if (attempt === attempts || !mayPass(error)) {
      const missing = error.code === "ENOENT";
      const reason = missing ? "it is not installed" : stderr.trim().split("\n")[0] || error.message;
      throw new DomainError("ISOLATION_UNAVAILABLE", `${command} could not be run: ${reason}`, {
        hint: "Run Sandgate as root with iptables installed.",
        cause: error,
      });
    }
    await delay(backoffMs(attempt, retry));
  }
}

/** `killed`: it took too long. EAGAIN: the host had no process for it. */
function mayPass({ code, killed }: ExecFileException): boolean {
  return code === busyStatus || code === "EAGAIN" || killed === true;
}

function run(
  command: string,
  args: readonly string[],
  input: string,
): Promise<{ error: ExecFileException | null; stdout: string; stderr: string }> {
  return new Promise((resolve) => {
    const child = execFile(command, args, { timeout: timeoutMs }, (error, stdout, stderr) => {
      resolve({ error, stdout, stderr });
    });
    // The exit status tells of a program that ended before it read its input.
    child.stdin?.on("error", () => {}).end(input);
  });
}

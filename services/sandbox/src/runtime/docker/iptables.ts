import { setTimeout as delay } from "node:timers/promises";
import { type Backoff, backoffMs } from "@sandgate/kit/base/backoff";
import { DomainError, messageOf } from "@sandgate/kit/base/domain-error";
import { type Ended, runProgram } from "./programs.ts";

/** How long iptables waits for the lock that all its users share. */
const lockWaitSeconds = 5;
const timeoutMs = 10_000;
const attempts = 4;
const retry: Backoff = { firstMs: 100, lastMs: 1_000 };

/** iptables' exit status when the kernel or the lock was busy (its RESOURCE_PROBLEM). */
const busyStatus = 4;
const missingStatus = 127;

/**
 * Runs the `-save` of iptables or ip6tables, or the `-restore` with this input, and answers what it printed. A failure
 * that may pass is tried again for a few seconds. Throws ISOLATION_UNAVAILABLE.
 */
export async function runIptables(command: string, args: readonly string[], input = ""): Promise<string> {
  // What only reads needs no lock.
  const words = command.endsWith("-restore") ? ["-w", String(lockWaitSeconds), ...args] : args;
  for (let attempt = 1; ; attempt++) {
    // One that can't be started, or took too long, may do better next time.
    const ended = await runProgram(command, words, { input, timeoutMs }).catch((error: unknown) => messageOf(error));
    const status = typeof ended === "string" ? busyStatus : ended.status;
    if (typeof ended !== "string" && status === 0) return ended.stdout;
    if (attempt === attempts || status !== busyStatus) {
      const reason = typeof ended === "string" ? ended : reasonOf(ended);
      throw new DomainError("ISOLATION_UNAVAILABLE", `${command} could not be run: ${reason}`, {
        hint: "Run Sandgate as root with iptables installed, or set SANDGATE_ISOLATION=off to try it by yourself.",
      });
    }
    await delay(backoffMs(attempt, retry));
  }
}

function reasonOf({ status, stderr }: Ended): string {
  if (status === missingStatus) return "it is not installed";
  return stderr.trim().split("\n")[0] || `it ended with status ${status}`;
}

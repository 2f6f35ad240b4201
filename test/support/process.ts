import { type ChildProcess, spawn } from "node:child_process";
import { randomInt } from "node:crypto";
import { once } from "node:events";
import { readdir, readFile } from "node:fs/promises";
import { createServer } from "node:net";
import { setTimeout as delay } from "node:timers/promises";

/** A child process with what it printed so far, both streams in the order they came. */
export interface RunningProcess {
  readonly child: ChildProcess;
  output(): string;
  /**
   * SIGTERM, and SIGKILL after `graceMs` (30 s unless given). Resolves with the exit code, null when a signal ended it.
   */
  stop(graceMs?: number): Promise<number | null>;
  /** SIGKILL at once, as a crash would. */
  kill(): Promise<void>;
  /** It keeps its connections and does nothing until it is resumed. */
  pause(): Promise<void>;
  resume(): void;
  /** Resolves with the exit code once the process is gone. */
  exited: Promise<number | null>;
}

const children = new Set<ChildProcess>();
process.once("exit", () => {
  for (const child of children) child.kill("SIGKILL");
});
// How Vitest ends a worker whose tests hang.
process.once("SIGTERM", () => process.exit(143));

/** Starts a program whose environment is exactly `env`; it is killed when this process ends first. */
export function startProcess(
  command: string,
  args: readonly string[],
  options: { cwd?: string; env: NodeJS.ProcessEnv },
): RunningProcess {
  const child = spawn(command, args, { ...options, stdio: ["ignore", "pipe", "pipe"] });
  let output = "";
  for (const stream of [child.stdout, child.stderr]) {
    stream.setEncoding("utf8").on("data", (text: string) => {
      output += text;
    });
  }
  children.add(child);
  const exited = new Promise<number | null>((resolve, reject) => {
    child.once("error", reject);
    child.once("close", (code) => {
      children.delete(child);
      resolve(code);
    });
  });
  exited.catch(() => {});
  return {
    child,
    output: () => output,
    exited,
    async stop(graceMs = 30_000) {
      const timer = setTimeout(() => child.kill("SIGKILL"), graceMs);
      child.kill("SIGTERM");
      try {
        return await exited;
      } finally {
        clearTimeout(timer);
      }
    },
    async kill() {
      child.kill("SIGKILL");
      await exited;
    },
    async pause() {
      child.kill("SIGSTOP");
      while (!(await isStopped(child.pid))) await delay(1);
    },
    resume: () => void child.kill("SIGCONT"),
  };
}

/** Whether all threads have been stopped, which takes those a moment that are at work on other processors. */
async function isStopped(pid: number | undefined): Promise<boolean> {
  const threads = await readdir(`/proc/${pid}/task`);
  const stats = await Promise.all(threads.map((thread) => readFile(`/proc/${pid}/task/${thread}/stat`, "utf8")));
  return stats.every((stat) => /\) T /.test(stat));
}

/**
 * A TCP port on a loopback address that was free a moment ago. It is none of those that systems give to outgoing
 * connections, so a server that was stopped finds it free again.
 */
export async function findFreePort(host = "127.0.0.1"): Promise<number> {
  for (;;) {
    const port = randomInt(10_000, 32_768);
    const server = createServer().listen(port, host);
    try {
      await once(server, "listening");
    } catch {
      continue;
    }
    server.close();
    await once(server, "close");
    return port;
  }
}

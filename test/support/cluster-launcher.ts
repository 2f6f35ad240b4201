// Starts the programs of a test cluster, and waits for what they bring about.

import { setTimeout as delay } from "node:timers/promises";
import { type RunningProcess, startProcess } from "./process.ts";

const startTimeoutMs = 60_000;

/** One of the cluster's programs, for tests of what happens without it. */
export interface ClusterProgram {
  /** SIGKILL, as a crash would. */
  kill(): Promise<void>;
  /** Starts it again with the same arguments once it has ended. */
  start(): Promise<void>;
  output(): string;
}

export interface RunningProgram extends ClusterProgram {
  name: string;
  pid(): number | undefined;
}

export interface Launcher {
  start(name: string, path: string, args: readonly string[]): RunningProgram;
  /** Waits until the check is true. Throws when a program has ended, or after a minute. */
  until(what: string, check: () => Promise<boolean>): Promise<void>;
  /** The last lines of every program. */
  describe(): string;
  /** Kills every program, the last first: kubelets would start again what is killed. */
  killAll(): Promise<void>;
}

/** What programs of a cluster are started with, so that they find those of Debian's packages. */
export const programsEnv = () => ({ PATH: `${process.env.PATH}:/usr/sbin:/sbin` });

export function createLauncher(): Launcher {
  const running: (RunningProgram & { hasEnded(): boolean })[] = [];
  return {
    start(name, path, args) {
      let launched: RunningProcess;
      const program = {
        name,
        output: () => launched.output(),
        pid: () => launched.child.pid,
        hasEnded: () => launched.child.exitCode !== null,
        kill: () => launched.kill(),
        async start() {
          launched = startProcess(path, args, { env: programsEnv() });
        },
      };
      void program.start();
      running.push(program);
      return program;
    },
    async until(what, check) {
      const deadline = Date.now() + startTimeoutMs;
      while (!(await check().catch(() => false))) {
        const ended = running.find((program) => program.hasEnded());
        if (ended) throw new Error(`${ended.name} has ended`);
        if (Date.now() > deadline) throw new Error(`${what} took more than ${startTimeoutMs / 1000} s`);
        await delay(50);
      }
    },
    describe: () => running.map((program) => `${program.name}: ${program.output().slice(-1_500)}`).join("\n"),
    async killAll() {
      for (const program of running.toReversed()) await program.kill();
    },
  };
}

import { spawn } from "node:child_process";
import { join } from "node:path";
import { until } from "@sandgate/test-support/until";
import { expect } from "vitest";

export const program = join(import.meta.dirname, "../../node_modules/.bin/sandgate");

export interface Ended {
  code: number | null;
  stdout: string;
  stderr: string;
}

/** A command line that runs. */
export interface Running {
  readonly pid: number;
  /** What it has printed so far: in a terminal all together. */
  output(): string;
  says(text: string | RegExp): Promise<void>;
  type(text: string): void;
  /** Ends its input. */
  endInput(): void;
  kill(signal: NodeJS.Signals): void;
  readonly ended: Promise<Ended>;
}

function follow(file: string, args: readonly string[], env: NodeJS.ProcessEnv): Running {
  const child = spawn(file, args, { env });
  let [stdout, stderr] = ["", ""];
  child.stdout.setEncoding("utf8").on("data", (text) => {
    stdout += text;
  });
  child.stderr.setEncoding("utf8").on("data", (text) => {
    stderr += text;
  });
  // It may have ended.
  child.stdin.on("error", () => {});
  const ended = new Promise<Ended>((resolve) => child.once("close", (code) => resolve({ code, stdout, stderr })));
  const output = () => stdout + stderr;
  return {
    pid: child.pid ?? 0,
    output,
    says: (text) => until(() => expect(output()).toMatch(text)),
    type: (text) => void child.stdin.write(text),
    endInput: () => void child.stdin.end(),
    kill: (signal) => void child.kill(signal),
    ended,
  };
}

/** Starts `sandgate` with pipes. */
export function startSandgate(args: readonly string[], env: NodeJS.ProcessEnv): Running {
  return follow(program, args, env);
}

/** Runs `sandgate` with pipes to its end. */
export function sandgate(args: readonly string[], o: { env: NodeJS.ProcessEnv; stdin?: string }): Promise<Ended> {
  const running = startSandgate(args, o.env);
  running.type(o.stdin ?? "");
  running.endInput();
  return running.ended;
}

/** Starts a shell command in a terminal of its own, of 80 columns and 24 rows. */
export function startInTerminal(command: string, env: NodeJS.ProcessEnv): Running {
  return follow("script", ["-qefc", `stty cols 80 rows 24; ${command}`, "/dev/null"], env);
}

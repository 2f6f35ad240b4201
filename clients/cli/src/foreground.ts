import { CommandTimedOut, type ProcessRecord, type Sandbox, SandgateError } from "@sandgate/client";
import { say, write } from "./output.ts";

export interface ForegroundOptions {
  command: readonly string[] | string | undefined;
  cwd?: string | undefined;
  env?: Record<string, string> | undefined;
  user?: string | undefined;
  /** Passes stdin. */
  interactive: boolean;
  /** In a terminal. */
  tty: boolean;
  signal: AbortSignal;
}

/** Runs a command in front of the user, and returns its exit code. Ctrl-C ends it. */
export async function runInForeground(sandbox: Sandbox, o: ForegroundOptions): Promise<number> {
  return o.tty ? runInTerminal(sandbox, o) : runInPipes(sandbox, o);
}

async function runInPipes(sandbox: Sandbox, o: ForegroundOptions): Promise<number> {
  const { command = [], cwd, env, user, interactive, signal } = o;
  let ended: ProcessRecord | undefined;
  let lostBytes = 0;
  const stdin = interactive ? (process.stdin as AsyncIterable<Uint8Array>) : undefined;
  for await (const event of sandbox.commands.stream(command, { cwd, env, user, stdin, signal })) {
    if (event.type === "output") await write(event.data, event.stream === "stderr" ? process.stderr : process.stdout);
    if (event.type === "gap") lostBytes += event.bytes;
    if (event.type === "exit") ended = event.process;
  }
  if (lostBytes > 0) say(`warning: ${lostBytes} bytes of output were lost while there was no connection`);
  return exitCodeOf(ended);
}

async function runInTerminal(sandbox: Sandbox, o: ForegroundOptions): Promise<number> {
  const { command, cwd, env, user, interactive, signal } = o;
  const { stdin, stdout } = process;
  const size = () => ({ cols: Math.min(1000, stdout.columns || 80), rows: Math.min(1000, stdout.rows || 24) });
  const terminal = await sandbox.pty.create({
    command,
    cwd,
    env,
    user,
    ...size(),
    signal,
    onData: (data) => void stdout.write(data),
    onConnection: (isConnected) => {
      if (!isConnected) process.stderr.write("\r\n[reconnecting]\r\n");
    },
  });
  const onResize = () => void terminal.resize(size());
  const onInput = (data: Uint8Array) => terminal.write(data);
  // What is typed at the end of a pipe: Ctrl-D.
  const onEnd = () => terminal.write("\u0004");
  const onAbort = () => void terminal.kill({ timeoutMs: 10_000 }).catch(() => {});
  signal.addEventListener("abort", onAbort, { once: true });
  stdout.on("resize", onResize);
  if (interactive) {
    // Every key goes to the program, Ctrl-C too.
    if (stdin.isTTY) stdin.setRawMode(true);
    stdin.on("data", onInput).on("end", onEnd);
  }
  try {
    return exitCodeOf(await terminal.wait());
  } finally {
    terminal.close();
    signal.removeEventListener("abort", onAbort);
    stdout.off("resize", onResize);
    stdin.off("data", onInput).off("end", onEnd);
    if (interactive && stdin.isTTY) stdin.setRawMode(false);
    stdin.pause();
  }
}

/** Throws CommandTimedOut when its time was up, and a SandgateError when how it ended is not known. */
export function exitCodeOf(process: ProcessRecord | undefined): number {
  if (process?.timedOut) {
    throw new CommandTimedOut("The command was ended when its time was up.", {
      exitCode: null,
      stdout: "",
      stderr: "",
    });
  }
  if (process === undefined || process.exitCode === null) {
    throw new SandgateError({ code: "process_lost", message: "How the command ended is not known." });
  }
  return process.exitCode;
}

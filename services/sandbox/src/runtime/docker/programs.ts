import { type ChildProcess, type ChildProcessWithoutNullStreams, spawn } from "node:child_process";
import { randomUUID } from "node:crypto";
import { mebibyte } from "@sandgate/kit/base/sizes";

/** How long a shell without work is kept. */
const idleMs = 120_000;
/** What a program may print, of output and of errors: the names of a tenant's files may be in it. */
const maxPrinted = 32 * mebibyte;

/** How a program has ended, and what it printed. */
export interface Ended {
  /** Its exit status; 127 where there is no such program, 128 and the number of a signal that ended it. */
  status: number;
  stdout: string;
  stderr: string;
}

const idle: Shell[] = [];

/**
 * Runs a program by a shell that stays for the next ones. Node.js itself starts a program by fork(2), which copies the
 * page tables of all its memory: nothing else is done here for 11 ms with 200 MB, and for 29 ms with 500 MB.
 * @param o.input lines, or nothing
 * @returns however it has ended. Throws when it takes longer than that or prints more than 32 Mi characters, when it can't
 *   be started for want of processes, descriptors or memory, and the signal's reason.
 */
export async function runProgram(
  program: string,
  args: readonly string[],
  o: { input?: string; timeoutMs: number; signal?: AbortSignal },
): Promise<Ended> {
  o.signal?.throwIfAborted();
  const shell = idle.pop() ?? new Shell();
  const limits = [AbortSignal.timeout(o.timeoutMs), ...(o.signal ? [o.signal] : [])];
  const ended = await shell.run([program, ...args], o.input ?? "", AbortSignal.any(limits));
  idle.push(shell);
  return ended;
}

/** Sets whether this process stays for a child that it has started. */
export function hold(child: ChildProcess, isNeeded: boolean): void {
  for (const each of [child, ...child.stdio]) {
    // As pipes of a child these are sockets; those that it inherited are null.
    const handle = each as unknown as { ref(): void; unref(): void } | null | undefined;
    if (isNeeded) handle?.ref();
    else handle?.unref();
  }
}

const quote = (word: string) => `'${word.replaceAll("'", "'\\''")}'`;

/** One that failed, or was told to end, can't be used again. It ends with this process. */
class Shell {
  // In a group of its own, so that what it runs ends with it.
  readonly #child: ChildProcessWithoutNullStreams = spawn("sh", [], { detached: true });
  #timer: NodeJS.Timeout | undefined;
  #isOver = false;

  constructor() {
    // Whoever waits for a program learns of it.
    this.#child.on("error", () => {});
    const { stdin, stdout, stderr }: Partial<ChildProcessWithoutNullStreams> = this.#child;
    // Without descriptors for its pipes there are none.
    if (!stdin || !stdout || !stderr) throw new Error("no program can be started: too many files are open");
    stdin.on("error", () => {});
    stdout.setEncoding("utf8");
    stderr.setEncoding("utf8");
    this.#child.once("exit", () => this.#end());
  }

  async run(words: readonly string[], input: string, limit: AbortSignal): Promise<Ended> {
    clearTimeout(this.#timer);
    hold(this.#child, true);
    try {
      return await this.#ask(words, input, limit);
    } catch (error) {
      this.#end();
      throw error;
    } finally {
      hold(this.#child, false);
      this.#timer = setTimeout(() => this.#end(), idleMs).unref();
    }
  }

  #ask(words: readonly string[], input: string, limit: AbortSignal): Promise<Ended> {
    const { stdin, stdout, stderr } = this.#child;
    // What no program prints.
    const mark = randomUUID();
    const given = input === "" ? "</dev/null" : `<<'${mark}'\n${input.replace(/\n$/, "")}\n${mark}`;
    const report = `printf '\\n${mark} %d\\n' $?; printf '\\n${mark}\\n' >&2`;
    return new Promise((resolve, reject) => {
      // What is read of the whole while it grows would copy it each time, so its end is kept beside it.
      const stdoutText = { whole: "", end: "" };
      const stderrText = { whole: "", end: "" };
      const see = () => {
        const [end, status] = new RegExp(`\\n${mark} (\\d+)\\n$`).exec(stdoutText.end) ?? [];
        const errorEnd = `\n${mark}\n`;
        if (end === undefined || !stderrText.end.endsWith(errorEnd)) return;
        stop();
        resolve({
          status: Number(status),
          stdout: stdoutText.whole.slice(0, -end.length),
          stderr: stderrText.whole.slice(0, -errorEnd.length),
        });
      };
      const take = (printed: { whole: string; end: string }, text: string) => {
        printed.whole += text;
        printed.end = (printed.end + text).slice(-64);
        if (printed.whole.length > maxPrinted) fail(new Error(`${words[0]} printed too much`));
        else see();
      };
      const takeOutput = (text: string) => take(stdoutText, text);
      const takeErrors = (text: string) => take(stderrText, text);
      const fail = (error: unknown) => {
        stop();
        reject(error);
      };
      const onError = (error: Error) => fail(error);
      const onEnd = () => fail(new Error(stderrText.whole.trim() || "the shell that runs programs has ended"));
      const onLimit = () => fail(limit.reason);
      const stop = () => {
        stdout.off("data", takeOutput);
        stderr.off("data", takeErrors);
        this.#child.off("error", onError).off("exit", onEnd);
        limit.removeEventListener("abort", onLimit);
      };
      stdout.on("data", takeOutput);
      stderr.on("data", takeErrors);
      this.#child.on("error", onError).on("exit", onEnd);
      limit.addEventListener("abort", onLimit);
      stdin.write(`PATH=${quote(process.env.PATH ?? "")}\n${words.map(quote).join(" ")} ${given}\n${report}\n`);
    });
  }

  #end(): void {
    clearTimeout(this.#timer);
    const at = idle.indexOf(this);
    if (at >= 0) idle.splice(at, 1);
    if (this.#child.pid === undefined || this.#isOver) return;
    this.#isOver = true;
    try {
      process.kill(-this.#child.pid, "SIGKILL");
    } catch {
      // All have ended.
    }
  }
}

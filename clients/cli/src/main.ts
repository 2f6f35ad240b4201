import { constants } from "node:os";
import { HelpAsked, UsageError } from "./args.ts";
import { commands } from "./commands.ts";
import { say } from "./output.ts";

/** The last comes when the terminal is closed. */
const endingSignals = ["SIGINT", "SIGTERM", "SIGHUP"] as const;

const [name = "", ...args] = process.argv.slice(2);
process.exitCode = await run(name, args);

async function run(name: string, args: readonly string[]): Promise<number> {
  const interrupted = new AbortController();
  const { signal } = interrupted;
  /** Ends the command, which still does what it has to at its end. */
  const interrupt = (exitCode: number) => {
    if (signal.aborted) return;
    process.exitCode = exitCode;
    interrupted.abort(new Error("Interrupted."));
  };
  for (const stream of [process.stdout, process.stderr]) {
    stream.on("error", (error: NodeJS.ErrnoException) => {
      // A reader such as `head` that has enough is no failure.
      const isEnough = error.code === "EPIPE";
      if (!isEnough && stream === process.stdout) say(`error: ${error.message}`);
      interrupt(isEnough ? 0 : 1);
    });
  }
  if (name === "" || name === "help" || name === "--help" || name === "-h") {
    const { printHelp } = await import("./help.ts");
    await printHelp(args[0]);
    return name === "" ? 2 : 0;
  }
  if (name === "--version" || name === "version") {
    const { printVersion } = await import("./help.ts");
    await printVersion();
    return 0;
  }
  let isAsked = false;
  const onSignal = (name: NodeJS.Signals) => {
    const exitCode = 128 + constants.signals[name];
    // The second one doesn't wait for anything. A closed terminal may send SIGHUP twice: its shell does, and the kernel.
    if (isAsked && name !== "SIGHUP") process.exit(exitCode);
    isAsked = true;
    interrupt(exitCode);
  };
  for (const name of endingSignals) process.on(name, onSignal);
  try {
    const command = commands[name];
    if (command === undefined) throw new UsageError(`there is no command ${JSON.stringify(name)}`);
    const { run } = await command.load();
    const code = await run(args, signal);
    return signal.aborted ? Number(process.exitCode) : code;
  } catch (error) {
    if (signal.aborted) return Number(process.exitCode);
    if (error instanceof HelpAsked) {
      const { printHelp } = await import("./help.ts");
      await printHelp(name);
      return 0;
    }
    return report(error, name);
  } finally {
    for (const name of endingSignals) process.off(name, onSignal);
    // Nothing that is still open is of interest, such as a terminal that is read from.
    process.stdin.destroy();
  }
}

/** Says on stderr what went wrong, and gives the exit code. */
async function report(error: unknown, name: string): Promise<number> {
  if (error instanceof UsageError) {
    const { usageOf } = await import("./help.ts");
    process.stderr.write(`error: ${error.message}\n${usageOf(name)}\n`);
    return 2;
  }
  const { SandgateError } = await import("@sandgate/client");
  if (!(error instanceof SandgateError)) {
    say(`error: ${error instanceof Error ? error.message : String(error)}`);
    return 1;
  }
  say(`error: ${error.message}`);
  for (const { field, issue } of error.details) say(`  ${field ?? ""} ${issue}`);
  if (error.hint !== undefined) say(`hint: ${error.hint}`);
  if (error.requestId !== undefined) say(`request id: ${error.requestId}`);
  return 1;
}

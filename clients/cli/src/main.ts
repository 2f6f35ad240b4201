import { UsageError } from "./args.ts";
import { commands } from "./commands.ts";

const [name = "", ...args] = process.argv.slice(2);
process.exitCode = await run(name, args);

async function run(name: string, args: readonly string[]): Promise<number> {
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
  const interrupted = new AbortController();
  let isInterrupted = false;
  const onSignal = (signal: NodeJS.Signals) => {
    // The second one doesn't wait for anything.
    if (isInterrupted) process.exit(signal === "SIGINT" ? 130 : 143);
    isInterrupted = true;
    process.exitCode = signal === "SIGINT" ? 130 : 143;
    interrupted.abort(new Error("Interrupted."));
  };
  process.on("SIGINT", onSignal);
  process.on("SIGTERM", onSignal);
  // A reader such as `head` that has enough is no failure.
  process.stdout.on("error", (error: NodeJS.ErrnoException) => process.exit(error.code === "EPIPE" ? 0 : 1));
  try {
    const command = commands[name];
    if (command === undefined) throw new UsageError(`there is no command ${JSON.stringify(name)}`);
    if (args.includes("--help") && !args.slice(0, args.indexOf("--help")).includes("--")) {
      const { printHelp } = await import("./help.ts");
      await printHelp(name);
      return 0;
    }
    const { run } = await command.load();
    const code = await run(args, interrupted.signal);
    return isInterrupted ? Number(process.exitCode) : code;
  } catch (error) {
    if (isInterrupted) return Number(process.exitCode);
    return report(error, name);
  } finally {
    process.off("SIGINT", onSignal);
    process.off("SIGTERM", onSignal);
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
    process.stderr.write(`error: ${error instanceof Error ? error.message : String(error)}\n`);
    return 1;
  }
  const details = error.details.map(({ field, issue }) => `  ${field ?? ""} ${issue}\n`).join("");
  const hint = error.hint === undefined ? "" : `hint: ${error.hint}\n`;
  const id = error.requestId === undefined ? "" : `request id: ${error.requestId}\n`;
  process.stderr.write(`error: ${error.message}\n${details}${hint}${id}`);
  return 1;
}

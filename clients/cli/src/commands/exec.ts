import { named, toMap, UsageError } from "../args.ts";
import { findSandbox } from "../context.ts";
import { runInForeground } from "../foreground.ts";
import { setUp } from "../setup.ts";

const options = {
  interactive: { type: "boolean", short: "i" },
  tty: { type: "boolean", short: "t" },
  workdir: { type: "string", short: "w" },
  env: { type: "string", short: "e", multiple: true },
  user: { type: "string", short: "u" },
} as const;

export async function exec(args: readonly string[], signal: AbortSignal): Promise<number> {
  const { context, positionals, rest = [], values } = setUp(args, signal, options, true);
  const [name = ""] = named(positionals, "SANDBOX");
  if (rest.length === 0) throw new UsageError("COMMAND is missing");
  const env = toMap(values.env, "-e");
  const sandbox = await findSandbox(context, name);
  return runInForeground(sandbox, {
    command: rest,
    cwd: values.workdir,
    env,
    user: values.user,
    interactive: values.interactive ?? false,
    tty: values.tty ?? false,
    signal,
  });
}

export async function shell(args: readonly string[], signal: AbortSignal): Promise<number> {
  const { context, positionals, values } = setUp(args, signal, options);
  const [name = ""] = named(positionals, "SANDBOX");
  const env = toMap(values.env, "-e");
  const sandbox = await findSandbox(context, name);
  return runInForeground(sandbox, {
    command: undefined,
    cwd: values.workdir,
    env,
    user: values.user,
    interactive: true,
    tty: true,
    signal,
  });
}

import { named, toSeconds } from "../args.ts";
import { findSandbox } from "../context.ts";
import { say, write } from "../output.ts";
import { setUp } from "../setup.ts";

export async function extend(args: readonly string[], signal: AbortSignal): Promise<number> {
  const { context, positionals, values } = setUp(args, signal, { shorten: { type: "boolean" } });
  const [name = "", time] = named(positionals, "SANDBOX", "TIME");
  const seconds = toSeconds(time, "TIME") ?? 0;
  const sandbox = await findSandbox(context, name);
  const record = await sandbox.extend(seconds, { shorten: values.shorten, signal });
  if (context.format === "json") await write(`${JSON.stringify(record, null, 2)}\n`);
  else say(`${record.name} lives until ${record.expiresAt}.`);
  return 0;
}

export async function stop(args: readonly string[], signal: AbortSignal): Promise<number> {
  const { context, positionals } = setUp(args, signal, {});
  for (const name of named(positionals, "SANDBOX…")) {
    const sandbox = await findSandbox(context, name);
    await sandbox.stop({ signal });
    await write(`${name}\n`);
  }
  return 0;
}

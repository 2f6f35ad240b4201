import { type ParseArgsConfig, parseArgs } from "node:util";

/** What was typed can't be understood; exit code 2. */
export class UsageError extends Error {}

/** `--help` was typed: how the command is used is printed, and nothing is done. */
export class HelpAsked extends Error {}

export type Options = NonNullable<ParseArgsConfig["options"]>;

/** What every command takes. */
const common = {
  help: { type: "boolean", short: "h" },
  url: { type: "string" },
  workspace: { type: "string" },
  output: { type: "string", short: "o" },
} as const satisfies Options;

type Values<O extends Options> = ReturnType<
  typeof parseArgs<{ options: O & typeof common; allowPositionals: true; strict: true }>
>["values"];

export interface Args<O extends Options> {
  values: Values<O>;
  /** What comes before `--`. */
  positionals: string[];
  /** What comes after `--`; undefined without one. */
  rest: string[] | undefined;
}

/** Parses options and what else is there. With `stopsEarly` all from the second positional on is a command, for which options are its own. */
export function parse<const O extends Options>(args: readonly string[], options: O, stopsEarly = false): Args<O> {
  const all = { ...common, ...options };
  const end = stopsEarly ? endOfOptions(args, all) : args.indexOf("--");
  const own = end < 0 ? args : args.slice(0, end);
  try {
    const parsed = parseArgs({ args: [...own], options: all, allowPositionals: true, strict: true });
    const rest = end < 0 ? undefined : args.slice(args[end] === "--" ? end + 1 : end);
    // What the configuration above leads to.
    return { values: parsed.values as Values<O>, positionals: parsed.positionals, rest };
  } catch (error) {
    const isUsage = error instanceof TypeError && "code" in error && String(error.code).startsWith("ERR_PARSE_ARGS");
    throw isUsage ? new UsageError(error.message.split(". ")[0] ?? error.message) : error;
  }
}

/** Where a command begins: after the first positional, or at its `--`; -1 where there is none. */
function endOfOptions(args: readonly string[], options: Options): number {
  const { tokens } = parseArgs({ args: [...args], options, allowPositionals: true, strict: false, tokens: true });
  const first = tokens.find(({ kind }) => kind !== "option");
  if (first === undefined) return -1;
  const begin = first.kind === "positional" ? first.index + 1 : first.index;
  return begin < args.length ? begin : -1;
}

/** The positionals, of which there must be as many as have names. The last may be `NAME…`, one or more, or `[NAME…]`. */
export function named(positionals: readonly string[], ...names: string[]): string[] {
  const isOpen = names.at(-1)?.includes("…") ?? false;
  for (const [i, name] of names.entries()) {
    if (positionals[i] === undefined && !name.startsWith("["))
      throw new UsageError(`${name.replace("…", "")} is missing`);
  }
  const extra = isOpen ? undefined : positionals[names.length];
  if (extra !== undefined) throw new UsageError(`${JSON.stringify(extra)} is one argument too many`);
  return [...positionals];
}

/** `key=value`, several times. */
export function toMap(given: readonly string[] | undefined, option: string): Record<string, string> | undefined {
  if (given === undefined) return undefined;
  return Object.fromEntries(
    given.map((each) => {
      const at = each.indexOf("=");
      if (at < 1) throw new UsageError(`${option} ${each}: KEY=VALUE is expected`);
      return [each.slice(0, at), each.slice(at + 1)];
    }),
  );
}

const units: Record<string, number> = { "": 1, s: 1, m: 60, h: 3600, d: 86_400 };

/** A time such as `90`, `90s`, `15m`, `2h` or `1d`, in seconds. */
export function toSeconds(text: string | undefined, option: string): number | undefined {
  if (text === undefined) return undefined;
  const [, digits, unit = ""] = /^(\d+)([smhd]?)$/.exec(text) ?? [];
  if (digits === undefined) throw new UsageError(`${option} ${text}: a time such as 90s, 15m or 2h is expected`);
  return Number(digits) * (units[unit] ?? 1);
}

export function toNumber(text: string | undefined, option: string): number | undefined {
  if (text === undefined) return undefined;
  if (!/^\d+$/.test(text)) throw new UsageError(`${option} ${text}: a number is expected`);
  return Number(text);
}

/** A time before now, such as `10m`, or a date. */
export function toMoment(text: string | undefined, option: string): Date | undefined {
  if (text === undefined) return undefined;
  if (/^\d+[smhd]?$/.test(text)) return new Date(Date.now() - (toSeconds(text, option) ?? 0) * 1000);
  const date = new Date(text);
  if (Number.isNaN(date.getTime()))
    throw new UsageError(`${option} ${text}: a time such as 10m, or a date, is expected`);
  return date;
}

import { type Args, HelpAsked, type Options, parse } from "./args.ts";
import { type Context, createContext } from "./context.ts";
import { toFormat } from "./output.ts";

/** Parses a command's arguments and opens what it works with. Throws HelpAsked where they ask for help. */
export function setUp<const O extends Options>(
  args: readonly string[],
  signal: AbortSignal,
  options: O,
  stopsEarly = false,
): Args<O> & { context: Context } {
  const parsed = parse(args, options, stopsEarly);
  // Every command has these; the options of one can't be told apart from them here.
  const { help, url, workspace, output } = parsed.values as {
    help?: boolean;
    url?: string;
    workspace?: string;
    output?: string;
  };
  if (help) throw new HelpAsked();
  return { ...parsed, context: createContext({ url, workspace, format: toFormat(output), signal }) };
}

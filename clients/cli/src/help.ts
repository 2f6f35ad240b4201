import { readFile } from "node:fs/promises";
import { commands } from "./commands.ts";
import { write } from "./output.ts";

/** How a command is used, or all of them. */
export function usageOf(name: string): string {
  const command = commands[name];
  return command ? `usage: sandgate ${command.usage}` : "usage: sandgate COMMAND …; `sandgate help` lists the commands";
}

export async function printHelp(name: string | undefined): Promise<void> {
  const command = name === undefined ? undefined : commands[name];
  if (name !== undefined && command) {
    await write(`${command.summary}.\n\n${usageOf(name)}\n\n${common}`);
    return;
  }
  const width = Math.max(...Object.keys(commands).map(({ length }) => length));
  const lines = Object.entries(commands).map(([each, { summary }]) => `  ${each.padEnd(width)}   ${summary}\n`);
  await write(`usage: sandgate COMMAND …\n\n${lines.join("")}\n${common}`);
}

export async function printVersion(): Promise<void> {
  const { version } = JSON.parse(await readFile(new URL("../package.json", import.meta.url), "utf8"));
  await write(`sandgate ${version}\n`);
}

const common = `Every command takes:
  --url URL                the address of the API (SANDGATE_URL)
  --workspace NAME         a workspace by name or id (SANDGATE_WORKSPACE)
  -o table|json|name       how to print
  -h, --help
A token is taken from SANDGATE_TOKEN, else from \`sandgate login\`.
`;

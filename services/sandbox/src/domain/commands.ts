import { invalid } from "@sandgate/kit/base/domain-error";

/** Bytes of all words of the command that a sandbox is made with. */
const maxBytesOfSandbox = 65_536;
/** Bytes of a command that is run in a sandbox, with its environment: what Linux takes of a single argument. */
const maxBytes = 128 * 1024;

/** Refuses a sandbox's command that names no program, or is too long. Its other rules are in the contract. */
export function checkCommandOfSandbox(command: readonly string[]): void {
  if (command[0] === "") throw invalid("command", "must begin with a program");
  if (bytesOf(command) > maxBytesOfSandbox) throw invalid("command", `must have ${maxBytesOfSandbox} bytes or fewer`);
}

/** Refuses a command to be run in a sandbox that names no program, or is too long. */
export function checkCommand({ argv, shell, env }: { argv: string[]; shell: string; env: Record<string, string> }) {
  if (argv.length === 0 && shell === "") throw invalid("command.command", "names no program");
  if (bytesOf([...argv, shell, ...Object.entries(env).flat()]) > maxBytes) {
    throw invalid("command.command", `has more than ${maxBytes} bytes together with its environment`);
  }
}

/** Each word ends with a NUL. */
function bytesOf(words: readonly string[]): number {
  return words.reduce((sum, word) => sum + Buffer.byteLength(word) + 1, 0);
}

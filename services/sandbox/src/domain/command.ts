import { invalid } from "@sandgate/kit/base/domain-error";

/** Bytes of all words of a command together. */
const maxCommandBytes = 65_536;

/** Refuses a command that names no program, or is too long. Its other rules are in the contract. */
export function checkCommand(command: readonly string[]): void {
  if (command[0] === "") throw invalid("command", "must begin with a program");
  const bytes = command.reduce((sum, word) => sum + Buffer.byteLength(word) + 1, 0);
  if (bytes > maxCommandBytes) throw invalid("command", `must have ${maxCommandBytes} bytes or fewer`);
}

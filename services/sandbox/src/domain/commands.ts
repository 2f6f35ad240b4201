import { invalid } from "@sandgate/kit/base/domain-error";

/** Bytes of a command with its environment: what Linux takes of a single argument. */
const maxCommandBytes = 128 * 1024;

/** Throws VALIDATION_ERROR for a command that is none, or too long. */
export function requireCommand({ argv, shell, env }: { argv: string[]; shell: string; env: Record<string, string> }) {
  if (argv.length === 0 && shell === "") throw invalid("command.command", "names no program");
  const texts = [...argv, shell, ...Object.entries(env).flat()];
  const bytes = texts.reduce((sum, text) => sum + Buffer.byteLength(text) + 1, 0);
  if (bytes > maxCommandBytes) {
    throw invalid("command.command", `has more than ${maxCommandBytes} bytes together with its environment`);
  }
}

import { createInterface } from "node:readline/promises";
import { addAbortSignal, Writable } from "node:stream";

/** All of stdin, as text without the last line break. Throws when the signal aborts. */
export async function readStdin(signal: AbortSignal): Promise<string> {
  const chunks: Buffer[] = [];
  for await (const chunk of addAbortSignal(signal, process.stdin)) chunks.push(chunk);
  const text = Buffer.concat(chunks).toString();
  return text.endsWith("\n") ? text.slice(0, -1) : text;
}

/**
 * Asks on the terminal. What is typed for a secret isn't shown. Throws when the signal aborts, and when the input ends
 * before anything was typed.
 */
export async function ask(question: string, o: { signal: AbortSignal; isSecret?: boolean }): Promise<string> {
  let isMuted = false;
  const output = new Writable({
    write(chunk, _encoding, done) {
      if (!isMuted) process.stderr.write(chunk);
      done();
    },
  });
  const lines = createInterface({ input: process.stdin, output, terminal: true });
  const gone = new AbortController();
  // The end of the terminal, or Ctrl-D, while it asks.
  lines.once("close", () => gone.abort());
  lines.once("SIGINT", () => process.kill(process.pid, "SIGINT"));
  try {
    const answer = lines.question(`${question}: `, { signal: AbortSignal.any([o.signal, gone.signal]) });
    isMuted = o.isSecret ?? false;
    return (await answer).trim();
  } catch (cause) {
    throw new Error("Nothing was typed.", { cause });
  } finally {
    if (isMuted) process.stderr.write("\n");
    lines.close();
  }
}

/** A password from the terminal, or else all of stdin. */
export function readPassword(signal: AbortSignal): Promise<string> {
  return process.stdin.isTTY ? ask("Password", { signal, isSecret: true }) : readStdin(signal);
}

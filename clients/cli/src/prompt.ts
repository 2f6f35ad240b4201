import { createInterface } from "node:readline/promises";
import { Writable } from "node:stream";

/** All of stdin, as text without the last line break. */
export async function readStdin(): Promise<string> {
  const chunks: Buffer[] = [];
  for await (const chunk of process.stdin) chunks.push(chunk);
  const text = Buffer.concat(chunks).toString();
  return text.endsWith("\n") ? text.slice(0, -1) : text;
}

/** Asks on the terminal. What is typed for a secret isn't shown. */
export async function ask(question: string, o: { isSecret?: boolean } = {}): Promise<string> {
  let isMuted = false;
  const output = new Writable({
    write(chunk, _encoding, done) {
      if (!isMuted) process.stderr.write(chunk);
      done();
    },
  });
  const lines = createInterface({ input: process.stdin, output, terminal: true });
  const gone = new AbortController();
  // The end of the terminal, or Ctrl-C, while it asks.
  lines.once("close", () => gone.abort());
  lines.once("SIGINT", () => process.kill(process.pid, "SIGINT"));
  try {
    const answer = lines.question(`${question}: `, { signal: gone.signal });
    isMuted = o.isSecret ?? false;
    return (await answer).trim();
  } finally {
    if (isMuted) process.stderr.write("\n");
    lines.close();
  }
}

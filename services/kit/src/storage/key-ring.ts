/** A program for operators that changes the key ring's file. Processes read the file when they start. */
import { readFile, rename, writeFile } from "node:fs/promises";
import { basename } from "node:path";
import { messageOf } from "../base/domain-error.ts";
import { newRingKey, parseRing, type RingFile } from "./sealing.ts";

const usage = `The key ring that seals secrets:
  add <file>        adds a key that opens values; prints its id
  use <file> <id>   from the next start on, this key seals values, and all others are re-encrypted with it
  drop <file> <id>  removes a key with which nothing is sealed any more (sandgate_sealed_values). What is stored nowhere
                    isn't counted: deploy/README.md, "Key ring"
Between add and use, start every process that seals values with the new file.
`;

async function read(file: string): Promise<RingFile> {
  const ring = parseRing(await readFile(file, "utf8"));
  if (!ring) throw new Error(`${file} is not a key ring.`);
  return ring;
}

/** Readers see the old file or the new one, never a part of it. */
async function write(file: string, ring: RingFile): Promise<void> {
  await writeFile(`${file}.new`, `${JSON.stringify(ring, undefined, 2)}\n`, { mode: 0o600, flush: true });
  await rename(`${file}.new`, file);
}

async function run([command, file, id]: readonly string[]): Promise<string> {
  if (command === "add" && file) {
    const { current, keys } = await read(file);
    const added = newRingKey();
    await write(file, { current, keys: { ...keys, [added.id]: added.key } });
    return `${added.id}\n`;
  }
  if ((command === "use" || command === "drop") && file && id) {
    const { current, keys } = await read(file);
    if (!Object.hasOwn(keys, id)) throw new Error(`There is no key "${id}".`);
    if (command === "drop" && id === current) throw new Error(`"${id}" is the current key: use another key first.`);
    const { [id]: key = "", ...others } = keys;
    await write(file, command === "use" ? { current: id, keys: { ...others, [id]: key } } : { current, keys: others });
    return "";
  }
  throw new Error(usage);
}

try {
  process.stdout.write(await run(process.argv.slice(2)));
} catch (error) {
  process.stderr.write(`${basename(import.meta.filename)}: ${messageOf(error)}\n`);
  process.exitCode = 1;
}

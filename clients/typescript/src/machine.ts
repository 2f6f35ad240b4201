// What there is on a machine with files and environment variables: Node.js, Deno and Bun.
import { createReadStream } from "node:fs";
import { type FileHandle, open, realpath, rename, rm, stat } from "node:fs/promises";
import { Readable } from "node:stream";

export { readStoredLogin } from "./stored-login.ts";

/** Reads an environment variable; an empty one counts as missing. */
export function readEnvironment(name: string): string | undefined {
  return process.env[name] || undefined;
}

/** A local file as a body. What is no file, such as a pipe, can be read once. */
export async function openLocalFile(path: string): Promise<{ isOnce: boolean; open(): ReadableStream<Uint8Array> }> {
  const isOnce = !(await stat(path)).isFile();
  // Node's own type of the same stream.
  return { isOnce, open: () => Readable.toWeb(createReadStream(path)) as unknown as ReadableStream<Uint8Array> };
}

/**
 * Writes a local file, which appears only once it is whole. A link's target is replaced rather than the link, and a device
 * or a pipe is written to directly. Returns the size in bytes.
 */
export async function writeLocalFile(path: string, content: AsyncIterable<Uint8Array>): Promise<number> {
  const found = await stat(path).catch(() => undefined);
  if (found && !found.isFile()) return writeTo(await open(path, "w"), content);
  const target = found ? await realpath(path) : path;
  const partial = `${target}.${crypto.randomUUID().slice(0, 8)}.part`;
  try {
    const size = await writeTo(await open(partial, "wx"), content);
    await rename(partial, target);
    return size;
  } catch (error) {
    await rm(partial, { force: true });
    throw error;
  }
}

async function writeTo(file: FileHandle, content: AsyncIterable<Uint8Array>): Promise<number> {
  let size = 0;
  try {
    for await (const chunk of content) {
      await file.writeFile(chunk);
      size += chunk.length;
    }
  } finally {
    await file.close();
  }
  return size;
}

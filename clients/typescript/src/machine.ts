// What there is on a machine with files and environment variables: Node.js, Deno and Bun.
import { createReadStream } from "node:fs";
import { open, readFile, rename, rm, stat } from "node:fs/promises";
import { homedir } from "node:os";
import { join } from "node:path";
import { Readable } from "node:stream";
import { BadSettings } from "./errors.ts";

/** What `sandgate login` stores. */
export interface StoredLogin {
  url?: string;
  token?: string;
  workspace?: string;
}

/** Reads an environment variable; an empty one counts as missing. */
export function readEnvironment(name: string): string | undefined {
  return process.env[name] || undefined;
}

/** Where `sandgate login` stores what it was given: SANDGATE_CONFIG, or `sandgate/login.json` in the user's settings. */
export function loginFile(): string {
  const settings = readEnvironment("XDG_CONFIG_HOME") ?? join(homedir(), ".config");
  return readEnvironment("SANDGATE_CONFIG") ?? join(settings, "sandgate", "login.json");
}

/** Reads what `sandgate login` stored; empty if it has stored nothing. Throws BadSettings when it can't be read. */
export async function readStoredLogin(): Promise<StoredLogin> {
  const file = loginFile();
  try {
    return JSON.parse(await readFile(file, "utf8"));
  } catch (error) {
    if (error instanceof Error && "code" in error && error.code === "ENOENT") return {};
    throw new BadSettings(`${file} can't be read: ${String(error)}`, "Remove it and run `sandgate login` again.");
  }
}

/** A local file as a body that can be sent again. */
export async function openLocalFile(path: string): Promise<{ size: number; open(): ReadableStream<Uint8Array> }> {
  const { size } = await stat(path);
  // Node's own type of the same stream.
  return { size, open: () => Readable.toWeb(createReadStream(path)) as unknown as ReadableStream<Uint8Array> };
}

/** Writes a local file, which is there whole or not at all. Returns its size in bytes. */
export async function writeLocalFile(path: string, content: AsyncIterable<Uint8Array>): Promise<number> {
  const partial = `${path}.${crypto.randomUUID().slice(0, 8)}.part`;
  try {
    const file = await open(partial, "wx");
    let size = 0;
    try {
      for await (const chunk of content) {
        await file.writeFile(chunk);
        size += chunk.length;
      }
    } finally {
      await file.close();
    }
    await rename(partial, path);
    return size;
  } catch (error) {
    await rm(partial, { force: true });
    throw error;
  }
}

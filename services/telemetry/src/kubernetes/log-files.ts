import { createHash } from "node:crypto";
import { constants } from "node:fs";
import { type FileHandle, lstat, open, readdir } from "node:fs/promises";
import { join } from "node:path";
import { Readable } from "node:stream";
import { createGunzip } from "node:zlib";
import { createRecordParser } from "./cri-lines.ts";

/** One of the files that a container's log consists of. */
export interface LogFile {
  path: string;
  compressed: boolean;
}

/** A log file that stays readable when it is renamed, compressed or removed. */
export interface OpenLogFile {
  inode: bigint;
  /**
   * Identifies the file among the container's files, also once it is renamed or compressed: the time of its first
   * record. Undefined while it has no record.
   */
  id(): Promise<bigint | undefined>;
  /** Its bytes from an offset to its present end; those of a compressed file as they were before. */
  read(offset: number): AsyncGenerator<Buffer>;
  close(): Promise<void>;
}

const chunkBytes = 64 * 1024;
/** A record's time has 35 bytes at most. */
const headBytes = 64;

/** `<attempt>.log`, after its rotation `<attempt>.log.<when>`, and later `….gz`. */
const fileName = /^(\d+)\.log(?:\.(\d{8}-\d{6}))?(\.gz)?$/;

/** The log files in a container's folder, the oldest first; none when the folder is gone. */
export async function listLogFiles(folder: string): Promise<LogFile[]> {
  const names = await ignoreMissing(readdir(folder));
  const found = (names ?? []).flatMap((name) => {
    const [, attempt, rotatedAt = "", gz] = fileName.exec(name) ?? [];
    if (attempt === undefined) return [];
    return { path: join(folder, name), attempt: Number(attempt), rotatedAt, compressed: gz !== undefined };
  });
  // The file that is being written has no time of rotation.
  const order = (at: string) => at || "~";
  found.sort((a, b) =>
    a.attempt !== b.attempt ? a.attempt - b.attempt : order(a.rotatedAt) < order(b.rotatedAt) ? -1 : 1,
  );
  // Between its compression and its removal a file is there twice.
  const isTwice = ({ path, compressed }: LogFile) => compressed && found.some((other) => `${other.path}.gz` === path);
  return found.filter((file) => !isTwice(file)).map(({ path, compressed }) => ({ path, compressed }));
}

/** The inode of a file that is there. */
export async function inodeOf(path: string): Promise<bigint | undefined> {
  return (await ignoreMissing(lstat(path, { bigint: true })))?.ino;
}

/** Undefined when it is gone. Throws for what isn't a regular file. */
export async function openLogFile({ path, compressed }: LogFile): Promise<OpenLogFile | undefined> {
  const handle = await ignoreMissing(open(path, constants.O_RDONLY | constants.O_NOFOLLOW | constants.O_NONBLOCK));
  if (!handle) return undefined;
  const stat = await handle.stat({ bigint: true });
  if (!stat.isFile()) {
    await handle.close();
    throw new Error(`${path} is no regular file`);
  }
  const read = (offset: number) => (compressed ? readCompressed(handle, offset) : readPlain(handle, offset));
  let id: bigint | undefined;
  return {
    inode: stat.ino,
    async id() {
      id ??= await readId(read(0));
      return id;
    },
    read,
    close: () => handle.close(),
  };
}

async function* readPlain(handle: FileHandle, offset: number): AsyncGenerator<Buffer> {
  for (let at = offset; ; ) {
    const { buffer, bytesRead } = await handle.read(Buffer.allocUnsafe(chunkBytes), 0, chunkBytes, at);
    if (bytesRead === 0) return;
    at += bytesRead;
    yield buffer.subarray(0, bytesRead);
  }
}

async function* readCompressed(handle: FileHandle, offset: number): AsyncGenerator<Buffer> {
  const packed = Readable.from(readPlain(handle, 0));
  const unpacked = createGunzip({ chunkSize: chunkBytes });
  packed.on("error", (error) => unpacked.destroy(error)).pipe(unpacked);
  let left = offset;
  try {
    for await (const bytes of unpacked) {
      const chunk: Buffer = bytes;
      if (left < chunk.length) yield chunk.subarray(left);
      left = Math.max(0, left - chunk.length);
    }
  } finally {
    packed.destroy();
    unpacked.destroy();
  }
}

async function readId(chunks: AsyncGenerator<Buffer>): Promise<bigint | undefined> {
  const parse = createRecordParser();
  let head: Buffer = Buffer.alloc(0);
  for await (const chunk of chunks) {
    head = Buffer.concat([head, chunk.subarray(0, headBytes - head.length)]);
    if (head.length === headBytes || head.includes(0x0a)) break;
  }
  if (head.length < headBytes && !head.includes(0x0a)) return undefined;
  const time = parse(head.subarray(0, head.includes(0x0a) ? head.indexOf(0x0a) : headBytes))?.timeNs;
  // A node that lost its power can leave bytes that are no record.
  return time ?? BigInt(`0x${createHash("sha256").update(head).digest("hex").slice(0, 14)}`);
}

async function ignoreMissing<T>(work: Promise<T>): Promise<T | undefined> {
  try {
    return await work;
  } catch (error) {
    if (error instanceof Error && "code" in error && (error.code === "ENOENT" || error.code === "ENOTDIR"))
      return undefined;
    throw error;
  }
}

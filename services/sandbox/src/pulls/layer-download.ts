import { createHash } from "node:crypto";
import { createReadStream } from "node:fs";
import { type FileHandle, open } from "node:fs/promises";
import { PassThrough, type Transform } from "node:stream";
import { pipeline } from "node:stream/promises";
import { setTimeout as delay } from "node:timers/promises";
import { createGunzip, createZstdDecompress } from "node:zlib";
import { DomainError } from "@sandgate/kit/base/domain-error";
import { type BlobSource, RegistryError } from "@sandgate/registry-client/registry-client";
import { tarBlockBytes } from "./tar-blocks.ts";
import { createEntryCounter } from "./tar-entries.ts";

export interface Layer {
  readonly digest: string;
  readonly sizeBytes: number;
  /** The digest of its unpacked content. */
  readonly diffId: string;
}

/** How often in all a download is tried; each goes on where the last one was cut off. */
const attempts = 4;
const pauseMs = 500;
/** Each chunk takes turns with a thread: with Node's own 16 KiB unpacking costs twice as much processor time. */
const chunkSize = 256 * 1024;
/**
 * Downloads a layer to a file, piece by piece as the disk takes them, and verifies its digest, its size and what it is
 * when unpacked. A failure may leave an incomplete file.
 *
 * @param unpackInTurn runs the work of unpacking when its turn has come
 * @param onDownload gets how many more bytes are going to be written to the file; what it throws ends the download
 * @param onReceived gets how much of the layer has come
 * @param onUnpacked gets how many more bytes, and files and folders, it has when unpacked, before they go; what it
 * throws ends the download
 * @throws RegistryError, `not_found` where the registry answers with something else
 */
export async function downloadLayer(o: {
  source: BlobSource;
  registryHost: string;
  layer: Layer;
  file: string;
  unpackInTurn: <T>(work: () => Promise<T>) => Promise<T>;
  onDownload: (bytes: number) => Promise<void>;
  onReceived: (layer: Layer, bytes: number) => void;
  onUnpacked: (bytes: number, entries: number) => Promise<void>;
  signal: AbortSignal;
}): Promise<void> {
  const { layer, registryHost } = o;
  const isWhole = await downloadBytes(o);
  const isRight = isWhole && (await o.unpackInTurn(() => unpackedDigest(o))) === layer.diffId;
  if (isRight) return;
  const what = isWhole
    ? `has other content in ${layer.digest} than the image's config says`
    : `does not have ${layer.digest}`;
  throw new RegistryError("not_found", `The registry ${registryHost} ${what}.`);
}

/** False where what came is not what the layer's digest and size say. */
async function downloadBytes(o: {
  source: BlobSource;
  registryHost: string;
  layer: Layer;
  file: string;
  onDownload: (bytes: number) => Promise<void>;
  onReceived: (layer: Layer, bytes: number) => void;
  signal: AbortSignal;
}): Promise<boolean> {
  const { source, registryHost, layer, signal } = o;
  const [algorithm = "", expected] = layer.digest.split(":");
  const target = await open(o.file, "w", 0o600);
  try {
    let hash = createHash(algorithm);
    let received = 0;
    for (let attempt = 1; ; attempt++) {
      try {
        const response = await source.open(layer.digest, received, signal);
        if (response.status === 200 && received > 0) {
          hash = createHash(algorithm);
          received = 0;
        }
        for await (const chunk of response.body) {
          if (received + chunk.length > layer.sizeBytes) return false;
          await o.onDownload(chunk.length);
          await writeAt(target, chunk, received);
          hash.update(chunk);
          received += chunk.length;
          o.onReceived(layer, received);
        }
        if (received === layer.sizeBytes) return hash.digest("hex") === expected;
      } catch (error) {
        signal.throwIfAborted();
        if (isDiskError(error) || error instanceof DomainError) throw error;
        if (error instanceof RegistryError && (error.problem !== "unreachable" || attempt === attempts)) throw error;
        if (attempt === attempts) throw unreachable(registryHost, error);
      }
      if (attempt === attempts) return false;
      await delay(pauseMs * attempt, undefined, { signal });
    }
  } finally {
    await target.close();
  }
}

async function writeAt(target: FileHandle, chunk: Buffer, position: number): Promise<void> {
  for (let written = 0; written < chunk.length; ) {
    const { bytesWritten } = await target.write(chunk, written, chunk.length - written, position + written);
    written += bytesWritten;
  }
}

/** What a layer is when unpacked, as an engine does it; undefined where it can't be, or is no tar archive. */
async function unpackedDigest(o: {
  layer: Layer;
  file: string;
  onUnpacked: (bytes: number, entries: number) => Promise<void>;
  signal: AbortSignal;
}): Promise<string | undefined> {
  const [algorithm = ""] = o.layer.diffId.split(":");
  const hash = createHash(algorithm);
  const countEntries = createEntryCounter();
  let bytes = 0;
  let refusal: unknown;
  const unpacker = await openUnpacker(o.file);
  if (!unpacker) return undefined;
  try {
    await pipeline(
      createReadStream(o.file, { highWaterMark: chunkSize }),
      unpacker.stream,
      async (chunks: AsyncIterable<Buffer>) => {
        for await (const chunk of chunks) {
          bytes += chunk.length;
          try {
            await o.onUnpacked(chunk.length, countEntries(chunk));
          } catch (error) {
            refusal = error;
            throw error;
          }
          hash.update(chunk);
        }
      },
      { signal: o.signal },
    );
  } catch (error) {
    o.signal.throwIfAborted();
    if (error === refusal || isDiskError(error)) throw error;
    return undefined;
  }
  if (unpacker.readBytes && unpacker.readBytes() !== o.layer.sizeBytes) return undefined;
  // Engines name a stack of layers by the digest of the text of two digests, and would take a layer of that text for
  // it.
  if (bytes > 0 && bytes < tarBlockBytes) return undefined;
  return `${algorithm}:${hash.digest("hex")}`;
}

interface Unpacker {
  readonly stream: Transform;
  /**
   * How much of the file it has read, where it may stop before the end: Node unpacks the first frame of Zstandard
   * alone.
   */
  readonly readBytes?: () => number;
}

/**
 * By the first bytes, as engines tell it: gzip (RFC 1952), Zstandard (RFC 8878), or not packed. Undefined for bzip2 and
 * xz, which some engines unpack although no layer may be so (OCI image specification), and for Zstandard frames that
 * are to be skipped.
 */
async function openUnpacker(file: string): Promise<Unpacker | undefined> {
  const handle = await open(file);
  try {
    const { buffer } = await handle.read(Buffer.alloc(4), 0, 4, 0);
    if (buffer.readUInt16BE(0) === 0x1f8b) return { stream: createGunzip({ chunkSize }) };
    const head = buffer.readUInt32BE(0);
    if (head === 0x28b52ffd) {
      const stream = createZstdDecompress({ chunkSize });
      return { stream, readBytes: () => stream.bytesWritten };
    }
    const isSkipped = (head & 0xf0ffffff) === 0x502a4d18;
    if (isSkipped || head >>> 8 === 0x425a68 || head === 0xfd377a58) return undefined;
    return { stream: new PassThrough() };
  } finally {
    await handle.close();
  }
}

/** Whether an error is the disk's own, such as a lack of space. */
export function isDiskError(error: unknown): boolean {
  const code = error instanceof Error && "code" in error ? error.code : undefined;
  return typeof code === "string" && ["ENOSPC", "EDQUOT", "EIO", "EROFS", "EFBIG", "EMFILE", "ENFILE"].includes(code);
}

/** RUNTIME_UNAVAILABLE for an error of the disk, which stays in the cause, for the log. */
export function cannotStore(cause: unknown): DomainError {
  return new DomainError("RUNTIME_UNAVAILABLE", "The image's layers can't be stored.", { cause });
}

function unreachable(registryHost: string, cause: unknown): RegistryError {
  return new RegistryError("unreachable", `The registry ${registryHost} interrupted the download of a layer.`, {
    cause,
  });
}

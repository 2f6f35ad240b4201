import { setTimeout as delay } from "node:timers/promises";
import { type Backoff, backoffMs } from "@sandgate/kit/base/backoff";
import type { Logger } from "@sandgate/kit/base/logging";
import type { LogBlock } from "../collect/container-source.ts";
import type { LogRow } from "../domain/rows.ts";
import { type CriLines, createCriLines, createRecordParser } from "./cri-lines.ts";
import { inodeOf, type LogFile, listLogFiles, type OpenLogFile, openLogFile } from "./log-files.ts";

/** How often files are looked at. */
export interface LogPace {
  /** The pause before a file is looked at for more, which grows while nothing comes. */
  poll: Backoff;
  /** The runtime may still write for so long to a file that was rotated, or to one whose container has just ended. */
  settleMs: number;
}

const defaultPace: LogPace = { poll: { firstMs: 250, lastMs: 1_000 }, settleMs: 200 };
/** What a record has beyond this is dropped; its line would be cut much earlier. */
const maxRecordBytes = 256 * 1024;
const newline = 0x0a;
const nothing: Buffer = Buffer.alloc(0);

/** Where the log of a pod's container is. */
export interface PodLog {
  folder: string;
  /** Aborted when the container has ended, so that nothing more will be written. */
  ended: AbortSignal;
}

/** A file that is being read. */
interface Reading {
  file: OpenLogFile;
  id: bigint | undefined;
  /** Where the record begins that is being read. */
  offset: number;
  /** What was read of that record. */
  partial: Buffer;
  /** What was dropped of that record. */
  droppedBytes: number;
}

/**
 * Reads a pod's log from its files: the kubelet renames the file that is being written when that is full, later
 * compresses it, and in the end removes it. With `follow` the log is over when the container has ended; without, and
 * when the files are gone, at the last line, with or without line end.
 */
export async function* readPodLog(
  log: PodLog,
  cursor: string,
  o: { follow: boolean; logger: Logger; signal: AbortSignal; pace?: LogPace },
): AsyncGenerator<LogBlock> {
  const { logger, signal } = o;
  const { poll, settleMs } = o.pace ?? defaultPace;
  const lines = createCriLines(cursor);
  const parse = createRecordParser();
  let reading: Reading | undefined;
  let idle = 0;
  /** Whether another file is written to by now, or none. */
  let isLeft = false;
  let isGone = false;

  function* takeRecord(at: Reading, text: Buffer, bytes: number): Generator<LogRow> {
    if (at.id === undefined) return;
    const from = { fileId: at.id, offset: at.offset };
    at.offset += bytes;
    const record = parse(text);
    const row = record && lines.take(record, from, { fileId: at.id, offset: at.offset });
    if (row) yield row;
  }

  function* takeBytes(at: Reading, bytes: Buffer): Generator<LogRow> {
    let start = 0;
    for (let end = bytes.indexOf(newline); end >= 0; end = bytes.indexOf(newline, start)) {
      const piece = bytes.subarray(start, end);
      const isWhole = at.partial.length === 0 && at.droppedBytes === 0;
      const text = isWhole ? piece : Buffer.concat([at.partial, piece.subarray(0, maxRecordBytes - at.partial.length)]);
      const size = at.partial.length + at.droppedBytes + piece.length + 1;
      at.partial = nothing;
      at.droppedBytes = 0;
      start = end + 1;
      yield* takeRecord(at, text, size);
    }
    const kept = bytes.subarray(start, start + maxRecordBytes - at.partial.length);
    at.partial = at.partial.length === 0 ? Buffer.from(kept) : Buffer.concat([at.partial, kept]);
    at.droppedBytes += bytes.length - start - kept.length;
  }

  /** A last record without its newline, in a file that nothing more is written to. */
  function* takePartial(at: Reading): Generator<LogRow> {
    const { partial, droppedBytes } = at;
    at.partial = nothing;
    at.droppedBytes = 0;
    if (partial.length > 0) yield* takeRecord(at, partial, partial.length + droppedBytes);
  }

  try {
    for (;;) {
      // Both looked at before the file is read: what is written later is in the next read.
      const isLast = !o.follow || log.ended.aborted;
      const wasLeft = isLeft;
      let hasRead = false;
      if (reading) {
        for await (const bytes of reading.file.read(reading.offset + reading.partial.length + reading.droppedBytes)) {
          signal.throwIfAborted();
          hasRead = true;
          reading.id ??= await reading.file.id();
          const rows = [...takeBytes(reading, bytes)];
          if (rows.length > 0) yield { rows, cursor: lines.cursor() };
        }
      }
      const next = await (reading
        ? openNext(log.folder, reading, lines, logger)
        : openFirst(log.folder, lines, logger));
      isLeft = next !== undefined;
      if (next === undefined) {
        if (isLast && !hasRead) break;
        idle = hasRead ? 0 : idle + 1;
        if (isLast) await delay(settleMs, undefined, { signal });
        else await pause(backoffMs(idle + 1, poll), AbortSignal.any([signal, log.ended]));
      } else if (next === "none") {
        isGone = !reading || (wasLeft && !hasRead);
        if (isGone) break;
      } else if (reading && (!wasLeft || (hasRead && next.isNewest))) {
        await next.reading.file.close();
        if (next.isNewest) await delay(settleMs, undefined, { signal });
      } else {
        const rows = reading ? [...takePartial(reading)] : [];
        await reading?.file.close();
        reading = next.reading;
        isLeft = !next.isNewest;
        if (rows.length > 0) yield { rows, cursor: lines.cursor() };
      }
      signal.throwIfAborted();
    }
    if (o.follow && !isGone) return;
    const rows = [...(reading ? takePartial(reading) : []), ...lines.finish()];
    if (rows.length > 0) yield { rows, cursor: lines.cursor() };
  } finally {
    await reading?.file.close();
  }
}

/** Ends early, without an error, when the signal aborts. */
async function pause(ms: number, signal: AbortSignal): Promise<void> {
  await delay(ms, undefined, { signal }).catch(() => undefined);
}

/** "none": there is no file any more. Undefined: none to go on with now. */
type Opened = { reading: Reading; isNewest: boolean } | "none" | undefined;

/** Opens the file at the position that is to be read from. */
async function openFirst(folder: string, lines: CriLines, logger: Logger): Promise<Opened> {
  return whileUnchanged(folder, async (files) => {
    const [oldest] = files;
    if (!oldest) return "none";
    if (lines.from.fileId === 0n) return openAt(oldest, 0, files);
    for (const position of [lines.from, lines.here]) {
      for (const file of files.toReversed()) {
        const opened = await openAt(file, position.offset, files);
        if (opened?.reading.id === position.fileId) {
          if (position !== lines.from) lines.skipOpen();
          return opened;
        }
        await opened?.reading.file.close();
      }
    }
    logger.warn({ folder }, "a log's file that was read to is gone; lines after it may be lost");
    lines.skipOpen();
    return openAt(oldest, 0, files);
  });
}

/** Opens the file after the one that is being read; undefined while that is the one that is being written. */
async function openNext(folder: string, reading: Reading, lines: CriLines, logger: Logger): Promise<Opened> {
  return whileUnchanged(folder, async (files) => {
    const newest = files.at(-1);
    if (!newest) return "none";
    if ((await inodeOf(newest.path)) === reading.file.inode) return undefined;
    const index = await findIndex(files, reading);
    if (index >= 0) {
      const next = files[index + 1];
      return next && openAt(next, 0, files);
    }
    logger.warn({ folder }, "a log's file was removed before the next was read; lines between them may be lost");
    for (const file of files) {
      const opened = await openAt(file, 0, files);
      if (opened && (opened.reading.id ?? 0n) > (lines.lastNs ?? 0n)) return opened;
      await opened?.reading.file.close();
    }
    return undefined;
  });
}

async function openAt(file: LogFile, offset: number, files: readonly LogFile[]): Promise<Exclude<Opened, "none">> {
  const opened = await openLogFile(file);
  if (!opened) return undefined;
  const reading = { file: opened, id: await opened.id(), offset, partial: nothing, droppedBytes: 0 };
  return { reading, isNewest: file === files.at(-1) };
}

async function findIndex(files: readonly LogFile[], { file, id }: Reading): Promise<number> {
  for (const [index, { path }] of files.entries()) if ((await inodeOf(path)) === file.inode) return index;
  // It may have been compressed meanwhile.
  for (const [index, candidate] of files.entries()) {
    if (!candidate.compressed || id === undefined) continue;
    const opened = await openLogFile(candidate);
    const isSame = (await opened?.id()) === id;
    await opened?.close();
    if (isSame) return index;
  }
  return -1;
}

/** Opens the file that `choose` chooses, again if files were renamed meanwhile: a name is another file's then. */
async function whileUnchanged(folder: string, choose: (files: readonly LogFile[]) => Promise<Opened>): Promise<Opened> {
  for (let files = await listLogFiles(folder); ; ) {
    const opened = await choose(files);
    const after = await listLogFiles(folder);
    if (files.length === after.length && files.every(({ path }, i) => path === after[i]?.path)) return opened;
    if (typeof opened === "object") await opened.reading.file.close();
    files = after;
  }
}

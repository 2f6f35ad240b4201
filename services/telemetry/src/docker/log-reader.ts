import { setTimeout as delay } from "node:timers/promises";
import { type Engine, openLogStream } from "@sandgate/docker-engine/client";
import { ignoreStatus } from "@sandgate/docker-engine/errors";
import { type Backoff, backoffMs } from "@sandgate/kit/base/backoff";
import type { Logger } from "@sandgate/kit/base/logging";
import { createWakeup } from "@sandgate/kit/base/wakeup";
import type { Container, ContainerSource, LogBlock } from "../collect/container-source.ts";
import type { LogRow } from "../domain/rows.ts";
import { createFrameParser, type LogFrame } from "./log-frames.ts";
import { createLogPosition, type LogPosition } from "./log-position.ts";

/**
 * The pause between two reads of a log that is being written: at least `minMs`, well within the time that a batch waits
 * for more lines, and `readFactor` times what the last read took, so that no tenant's log keeps the engine busy.
 */
const pollDelay = { minMs: 200, readFactor: 4 };

/**
 * The pause between two reads of a log that the engine reports nothing new of. A log is rotated when it is written, so
 * a follower that lost it at that is found by the first such read; later ones are further and further apart.
 */
const idlePoll: Backoff = { firstMs: 10_000, lastMs: 120_000 };

/**
 * How many of a log's last frames a read asks for: twice as many as came last time, between `min` and `first`, then 16
 * times as many up to `max`, then the whole log. The engine finds 100,000 to 200,000 frames in a second.
 */
const tailFrames = { min: 16, first: 16_384, max: 262_144, growth: 16 };

type FrameTime = Pick<LogFrame, "stream" | "timeNs">;

/** What came of reading frames. */
interface FramesRead {
  /** How many came after the position. */
  newFrames: number;
  last: FrameTime | undefined;
  /** Whether the frame that had to be among them was; true when there was none. */
  reached: boolean;
}

/** Reads containers' logs as ContainerSource.readLogs says. */
export function createLogReader(engine: Engine, logger: Logger): ContainerSource["readLogs"] {
  async function openLog(containerId: string, query: Record<string, string>, signal: AbortSignal) {
    // 409: it is being removed.
    const log = await ignoreStatus([404, 409], openLogStream(engine, containerId, query, signal));
    return log ?? noBytes();
  }

  /** Reads the frames, among which `until` has to be. */
  async function* readFrames(
    position: LogPosition,
    log: AsyncIterable<Buffer>,
    until?: FrameTime,
  ): AsyncGenerator<LogBlock, FramesRead> {
    const parse = createFrameParser();
    let newFrames = 0;
    let last: FrameTime | undefined;
    let reached = until === undefined;
    for await (const bytes of log) {
      const rows: LogRow[] = [];
      try {
        for (const frame of parse(bytes)) {
          if (!position.seeking) newFrames += 1;
          const { stream, timeNs } = frame;
          last = { stream, timeNs };
          reached ||= timeNs === until?.timeNs && stream === until.stream;
          const row = position.take(frame);
          if (row) rows.push(row);
        }
      } finally {
        // What came before a failure, too.
        if (rows.length > 0) yield { rows, cursor: position.cursor() };
      }
    }
    return { newFrames, last, reached };
  }

  function warnOfLoss(container: Container, position: LogPosition, text: string): void {
    const { id: containerId, sandboxId } = container;
    logger.warn({ sandboxId, containerId, cursor: position.cursor() }, text);
  }

  /** Reads the whole log from the position, a second time when the log no longer has the last frame that was read. */
  async function* readAll(
    container: Container,
    position: LogPosition,
    until: FrameTime | undefined,
    signal: AbortSignal,
  ): AsyncGenerator<LogBlock, FramesRead> {
    for (;;) {
      const sinceNs = position.begin();
      const since = sinceNs !== undefined && { since: formatSeconds(sinceNs) };
      const log = await openLog(container.id, { timestamps: "1", ...since }, signal);
      const read = yield* readFrames(position, log, until);
      if (position.end()) return read;
      warnOfLoss(container, position, "the engine's log no longer has the frame it was read to; lines may be lost");
    }
  }

  /**
   * Reads on in the log's last frames, which is cheap, or in all of it when they don't reach back to the position.
   * Returns how many frames are new. An engine from version 28 on takes a line that it can't decode, such as one that a
   * full disk has broken off, for the end of the log, unless it begins behind that line.
   */
  async function* readOn(
    container: Container,
    position: LogPosition,
    expected: number,
    signal: AbortSignal,
  ): AsyncGenerator<LogBlock, number> {
    const openTail = (frames: number) => openLog(container.id, { timestamps: "1", tail: String(frames) }, signal);
    const { min, first, max, growth } = tailFrames;
    let read: FramesRead | undefined;
    /** The longest tail that lacks the position, but not the frames at the log's end. */
    let tail: { frames: number; last: FrameTime | undefined } | undefined;
    let frames = Math.min(first, Math.max(min, 2 * expected));
    for (; position.started && !read && frames <= max; frames *= growth) {
      position.beginTail();
      const found = yield* readFrames(position, await openTail(frames), tail?.last);
      if (!position.seeking) read = found;
      else if (found.reached) tail = { frames, last: found.last };
    }
    read ??= yield* readAll(container, position, tail?.last, signal);
    if (read.reached || !tail) return read.newFrames;
    warnOfLoss(container, position, "the engine can't read a part of the log: its lines are lost");
    position.lose();
    position.begin();
    const rest = yield* readFrames(position, await openTail(tail.frames));
    position.end();
    return read.newFrames + rest.newFrames;
  }

  /**
   * Follows the log from the position. What the engine sends to a follower only says that there is something new:
   * around a rotation of the log it can lack a whole file or repeat one. The lines are read from the files as they are
   * at one moment.
   */
  async function* readFollowing(
    container: Container,
    position: LogPosition,
    signal: AbortSignal,
  ): AsyncGenerator<LogBlock> {
    const stopped = new AbortController();
    const followSignal = AbortSignal.any([signal, stopped.signal]);
    const wakeup = createWakeup();
    let notified = false;
    let ended = false;
    const follow = async () => {
      // Starts with the last frame, so that nothing falls between the first read and the following.
      for await (const _ of await openLog(container.id, { follow: "1", tail: "1" }, followSignal)) {
        notified = true;
        wakeup.wake();
      }
    };
    const following = follow().finally(() => {
      ended = true;
      wakeup.wake();
    });
    // Awaited below, unless reading fails first.
    following.catch(() => undefined);
    try {
      let newFrames = 0;
      // The first read needs no notification.
      let wasNotified = true;
      let idlePolls = 1;
      for (;;) {
        const startedMs = performance.now();
        newFrames = yield* readOn(container, position, newFrames, signal);
        if (ended) return await following;
        const readMs = performance.now() - startedMs;
        await delay(Math.max(pollDelay.minMs, pollDelay.readFactor * readMs), undefined, { signal });
        // There were lines that the engine did not report: it follows a file that was rotated away.
        if (newFrames > 0 && !wasNotified && !notified) return;
        await wakeup.wait(backoffMs(idlePolls, idlePoll), followSignal);
        idlePolls = notified ? 1 : idlePolls + 1;
        wasNotified = notified;
        notified = false;
      }
    } finally {
      stopped.abort();
    }
  }

  return async function* readLogs(container, cursor, { follow, signal }) {
    const position = createLogPosition(cursor);
    if (follow) return yield* readFollowing(container, position, signal);
    yield* readOn(container, position, 0, signal);
    const rows = position.finish();
    if (rows.length > 0) yield { rows, cursor: position.cursor() };
  };
}

function formatSeconds(ns: bigint): string {
  return `${ns / 1_000_000_000n}.${String(ns % 1_000_000_000n).padStart(9, "0")}`;
}

async function* noBytes(): AsyncGenerator<Buffer> {}

import { execFile } from "node:child_process";
import { appendFile, mkdir, readdir, readFile, rename, rm, writeFile } from "node:fs/promises";
import { join } from "node:path";
import { promisify } from "node:util";
import { gzipSync } from "node:zlib";
import { createLogger } from "@sandgate/kit/base/logging";
import { test } from "@sandgate/test-support/test";
import { until } from "@sandgate/test-support/until";
import { describe, expect, vi } from "vitest";
import { cutMark } from "../domain/line-text.ts";
import { type LogRow, maxLineBytes, type StreamName } from "../domain/rows.ts";
import type { LogFile } from "./log-files.ts";
import { readPodLog } from "./log-reader.ts";

/** Called in turn, once each, when a file was read to its end. */
const atEnds = vi.hoisted((): (() => Promise<void>)[] => []);
vi.mock("./log-files.ts", async (importOriginal) => {
  const files = await importOriginal<typeof import("./log-files.ts")>();
  return {
    ...files,
    async openLogFile(file: LogFile) {
      const opened = await files.openLogFile(file);
      return (
        opened && {
          ...opened,
          async *read(offset: number) {
            yield* opened.read(offset);
            await atEnds.shift()?.();
          },
        }
      );
    },
  };
});

const logger = createLogger({ service: "telemetry", level: "silent" });
const pace = { poll: { firstMs: 1, lastMs: 2 }, settleMs: 5 };

/** What the runtime and the kubelet do to a container's log. */
function createLog(folder: string) {
  let now = 1_795_364_046_000_000_000n;
  // The kubelet's clock, by which rotated files are named.
  let rotations = 1_795_364_046_000;
  const rotated = () => readdir(folder).then((names) => names.filter((name) => name !== "0.log").sort());
  return {
    async write(stream: StreamName, text: string, tag: "P" | "F" = "F"): Promise<void> {
      now += 1_000n;
      const seconds = new Date(Number(now / 1_000_000n)).toISOString().slice(0, 19);
      const time = `${seconds}.${String(now % 1_000_000_000n).padStart(9, "0")}Z`;
      await appendFile(join(folder, "0.log"), `${time} ${stream} ${tag} ${text}\n`);
    },
    setClockBack(): void {
      now -= 3_600_000_000_000n;
    },
    /**
     * As the kubelet does: it compresses what was rotated before, and keeps `keep` files beside the one that is
     * written.
     */
    async rotate(keep = 100): Promise<void> {
      for (const name of await rotated()) {
        if (name.endsWith(".gz")) continue;
        const path = join(folder, name);
        await writeFile(`${path}.tmp`, gzipSync(await readFile(path)));
        await rename(`${path}.tmp`, `${path}.gz`);
        await rm(path);
      }
      for (const name of (await rotated()).slice(0, -keep)) await rm(join(folder, name));
      rotations += 1_000;
      const [date, time] = new Date(rotations).toISOString().split(/[T.]/);
      await rename(
        join(folder, "0.log"),
        join(folder, `0.log.${date?.replaceAll("-", "")}-${time?.replaceAll(":", "")}`),
      );
      await writeFile(join(folder, "0.log"), "");
    },
  };
}

/** Reads on from a cursor until `count` lines have come (all that are there and will ever be, unless given). */
async function read(folder: string, cursor = "", count = Number.POSITIVE_INFINITY) {
  const stopped = new AbortController();
  const ended = count === Number.POSITIVE_INFINITY ? AbortSignal.abort() : new AbortController().signal;
  const rows: LogRow[] = [];
  let last = cursor;
  const options = { follow: count < Number.POSITIVE_INFINITY, logger, signal: stopped.signal, pace };
  for await (const block of readPodLog({ folder, ended }, cursor, options)) {
    rows.push(...block.rows);
    last = block.cursor;
    if (rows.length >= count) break;
  }
  return { texts: rows.map(({ log }) => log), rows, cursor: last };
}

test("lines have their time, stream and text; segments of a line are joined under the time of the first", async ({
  folder,
}) => {
  const log = createLog(folder);
  await log.write("stdout", "one, with  spaces ");
  await log.write("stdout", "two ", "P");
  await log.write("stderr", "");
  await log.write("stdout", "parts", "F");
  await writeFile(join(folder, "1.log"), "2026-11-22T18:14:06.5+02:00 stderr F:x later\n");
  const { rows } = await read(folder);
  expect(rows).toEqual([
    { timeNs: 1_795_364_046_000_001_000n, stream: "stdout", log: "one, with  spaces " },
    { timeNs: 1_795_364_046_000_003_000n, stream: "stderr", log: "" },
    { timeNs: 1_795_364_046_000_002_000n, stream: "stdout", log: "two parts" },
    { timeNs: BigInt(Date.parse("2026-11-22T16:14:06.5Z")) * 1_000_000n, stream: "stderr", log: "later" },
  ]);
});

test("a line that is too long is cut once; a last line and a last record without their ends count", async ({
  folder,
}) => {
  const log = createLog(folder);
  for (let part = 0; part < 10; part++) await log.write("stdout", "x".repeat(16_384), part < 9 ? "P" : "F");
  await log.write("stderr", "y".repeat(1_000_000));
  await log.write("stdout", "open", "P");
  await appendFile(join(folder, "0.log"), "not a record\n2026-11-22T16:14:07Z stderr F torn");
  const { texts } = await read(folder);
  const cut = (letter: string) => letter.repeat(maxLineBytes - Buffer.byteLength(cutMark)) + cutMark;
  expect(texts).toEqual([cut("x"), cut("y"), "torn", "open"]);
});

test("what is written while it is followed comes, over rotations, until the container has ended", async ({
  folder,
}) => {
  const log = createLog(folder);
  const ended = new AbortController();
  const texts: string[] = [];
  // Without a file the log counts as gone.
  await log.write("stdout", "first");
  const reading = (async () => {
    const { signal } = new AbortController();
    const blocks = readPodLog({ folder, ended: ended.signal }, "0", { follow: true, logger, signal, pace });
    for await (const { rows } of blocks) texts.push(...rows.map(({ log: text }) => text));
  })();
  const expected = ["first"];
  for (let i = 0; i < 60; i++) {
    await log.write("stdout", `${i}`);
    expected.push(`${i}`);
    if (i % 10 === 5) await log.rotate();
    // Left to itself the reader is behind by more than one file at times.
    if (i % 7 === 0) await until(() => expect(texts).toEqual(expected), { intervalMs: 2 });
  }
  await log.write("stdout", "the last");
  ended.abort();
  await reading;
  expect(texts).toEqual([...expected, "the last"]);
});

/** The lines of a log that is followed, of which "1" was read, and its file was then looked at and had no more. */
async function* followIdle(folder: string, log: ReturnType<typeof createLog>, then: () => Promise<void>) {
  await log.write("stdout", "1");
  const { signal } = new AbortController();
  const blocks = readPodLog({ folder, ended: signal }, "", { follow: true, logger, signal, pace });
  expect((await blocks.next()).value?.rows).toMatchObject([{ log: "1" }]);
  atEnds.push(async () => {}, then);
  for await (const { rows } of blocks) for (const row of rows) yield row.log;
}

test("what was written between a read and a rotation is read, as is what comes to a file that was just rotated", async ({
  folder,
}) => {
  const log = createLog(folder);
  const texts = followIdle(folder, log, async () => {
    await log.write("stdout", "2");
    await log.rotate();
    atEnds.push(async () => {
      const [rotated = ""] = (await readdir(folder)).filter((name) => name !== "0.log");
      await appendFile(join(folder, rotated), "2026-11-22T16:14:06.5Z stdout F 3\n");
    });
    await log.write("stdout", "4");
  });
  for (const text of ["2", "3", "4"]) expect((await texts.next()).value).toBe(text);
  await texts.return();
});

test("what was written between a read and two rotations is read", async ({ folder }) => {
  const log = createLog(folder);
  const texts = followIdle(folder, log, async () => {
    for (const text of ["2", "3", "4"]) {
      await log.write("stdout", text);
      if (text !== "4") await log.rotate();
    }
  });
  for (const text of ["2", "3", "4"]) expect((await texts.next()).value).toBe(text);
  await texts.return();
});

test("what was written between a read and the removal of the folder is read", async ({ folder }) => {
  const own = join(folder, "sandbox");
  await mkdir(own);
  const log = createLog(own);
  const texts = followIdle(own, log, async () => {
    await log.write("stdout", "2");
    await rm(own, { recursive: true });
  });
  expect((await texts.next()).value).toBe("2");
  expect((await texts.next()).done).toBe(true);
});

test("a folder that is removed is read to the end from the file that is open", async ({ folder }) => {
  const own = join(folder, "sandbox");
  await mkdir(own);
  const log = createLog(own);
  await log.write("stdout", "first");
  const { signal } = new AbortController();
  const blocks = readPodLog({ folder: own, ended: signal }, "", { follow: true, logger, signal, pace });
  expect((await blocks.next()).value?.rows).toMatchObject([{ log: "first" }]);
  await log.write("stdout", "second");
  await log.write("stdout", "no end", "P");
  await rm(own, { recursive: true });
  expect((await blocks.next()).value?.rows).toMatchObject([{ log: "second" }]);
  expect((await blocks.next()).value?.rows).toMatchObject([{ log: "no end" }]);
  expect((await blocks.next()).done).toBe(true);
});

test("a file that is compressed while it is read is found again, also after the clock was set back", async ({
  folder,
}) => {
  const log = createLog(folder);
  await log.write("stdout", "1");
  const { signal } = new AbortController();
  const blocks = readPodLog({ folder, ended: signal }, "", { follow: true, logger, signal, pace });
  const texts = async () => (await blocks.next()).value?.rows.map((row: LogRow) => row.log);
  expect(await texts()).toEqual(["1"]);
  await log.write("stdout", "2");
  await log.rotate();
  log.setClockBack();
  await log.write("stdout", "3");
  await log.rotate();
  await log.write("stdout", "4");
  expect([await texts(), await texts(), await texts()]).toEqual([["2"], ["3"], ["4"]]);
  await blocks.return(undefined);
});

test("a record that a rotated file ends in the middle of counts, as a node that lost its power leaves it", async ({
  folder,
}) => {
  const log = createLog(folder);
  await log.write("stdout", "1");
  await appendFile(join(folder, "0.log"), "2026-11-22T16:14:07Z stderr F torn");
  await log.rotate();
  await log.write("stdout", "2");
  const { texts, cursor } = await read(folder);
  expect(texts).toEqual(["1", "torn", "2"]);
  await log.write("stdout", "3");
  expect((await read(folder, cursor)).texts).toEqual(["3"]);
});

test("a file that begins with no record, as a node that lost its power leaves it, has its lines all the same", async ({
  folder,
}) => {
  const log = createLog(folder);
  await writeFile(join(folder, "0.log"), `${"\0".repeat(100)}\n`);
  for (const text of ["1", "2"]) await log.write("stdout", text);
  const { texts, cursor } = await read(folder, "", 2);
  expect(texts).toEqual(["1", "2"]);
  await log.rotate();
  await log.write("stdout", "3");
  expect((await read(folder, cursor)).texts).toEqual(["3"]);
});

test("what was removed before it was read is lost, and nothing is read twice for it", async ({ folder }) => {
  const log = createLog(folder);
  for (const text of ["1", "2"]) await log.write("stdout", text);
  const { cursor } = await read(folder, "", 2);
  for (const text of ["3", "4", "5", "6"]) {
    await log.rotate(1);
    await log.write("stdout", text);
  }
  expect((await read(folder, cursor)).texts).toEqual(["4", "5", "6"]);
});

test("a line that was open in a file that is gone by now costs its beginning, and no other line", async ({
  folder,
}) => {
  const log = createLog(folder);
  await log.write("stdout", "open", "P");
  await log.rotate();
  for (const text of ["1", "2"]) await log.write("stderr", text);
  const { texts, cursor } = await read(folder, "", 2);
  expect(texts).toEqual(["1", "2"]);
  for (const name of await readdir(folder)) if (name !== "0.log") await rm(join(folder, name));
  await log.write("stdout", "its end");
  await log.write("stderr", "3");
  expect((await read(folder, cursor)).texts).toEqual(["its end", "3"]);
  await writeFile(join(folder, "0.log"), "");
  for (const text of ["4", "5", "6"]) await log.write("stderr", text);
  expect((await read(folder, cursor)).texts).toEqual(["4", "5", "6"]);
});

test("a file that is there compressed and uncompressed is read once, and the containers of a pod in their order", async ({
  folder,
}) => {
  const log = createLog(folder);
  await log.write("stdout", "1");
  await log.rotate();
  const [rotated = ""] = (await readdir(folder)).filter((name) => name !== "0.log");
  await writeFile(join(folder, `${rotated}.gz`), gzipSync(await readFile(join(folder, rotated))));
  await log.write("stdout", "2");
  for (const attempt of [10, 9]) {
    await writeFile(join(folder, `${attempt}.log`), `2026-11-22T16:15:${attempt + 10}Z stdout F of ${attempt}\n`);
  }
  expect((await read(folder)).texts).toEqual(["1", "2", "of 9", "of 10"]);
});

test("what comes after a container has ended is read, as long as more comes", async ({ folder }) => {
  const log = createLog(folder);
  await log.write("stdout", "1");
  atEnds.push(() => log.write("stdout", "2"));
  expect((await read(folder)).texts).toEqual(["1", "2"]);
});

test("a line that is open when a container has ended is not given out before all of it was read", async ({
  folder,
}) => {
  const log = createLog(folder);
  await log.write("stdout", "first ", "P");
  const { signal } = new AbortController();
  const blocks = readPodLog({ folder, ended: AbortSignal.abort() }, "", { follow: true, logger, signal, pace });
  expect((await blocks.next()).done).toBe(true);
  await log.write("stdout", "last");
  expect((await read(folder)).texts).toEqual(["first last"]);
});

test("what isn't a file is not read, and keeps nobody waiting", async ({ folder }) => {
  await promisify(execFile)("mkfifo", [join(folder, "0.log")]);
  await expect(read(folder)).rejects.toThrow("is no regular file");
});

test("a link in place of a log is not followed", async ({ folder }) => {
  const { symlink } = await import("node:fs/promises");
  await writeFile(join(folder, "secret"), "2026-11-22T16:14:07Z stderr F secret\n");
  await symlink(join(folder, "secret"), join(folder, "0.log"));
  await expect(read(folder)).rejects.toThrow("ELOOP");
});

describe("restarts", () => {
  /** A generator of numbers that is the same for the same seed (mulberry32). */
  const randomOf = (seed: number) => {
    let state = seed;
    return (below: number) => {
      state = (state + 0x6d2b79f5) | 0;
      let t = Math.imul(state ^ (state >>> 15), 1 | state);
      t = (t + Math.imul(t ^ (t >>> 7), 61 | t)) ^ t;
      return ((t ^ (t >>> 14)) >>> 0) % below;
    };
  };

  test.each([1, 2, 3, 4, 5, 6, 7, 8])("at any place nothing is lost or repeated (%i)", async (seed) => {
    const { createTempFolder } = await import("@sandgate/test-support/temp-folder");
    const { path: folder, remove } = await createTempFolder();
    const random = randomOf(seed);
    const log = createLog(folder);
    const expected: Record<StreamName, string[]> = { stdout: [], stderr: [] };
    const open: Record<StreamName, string | undefined> = { stdout: undefined, stderr: undefined };
    const found: Record<StreamName, string[]> = { stdout: [], stderr: [] };
    let cursor = "";
    let serial = 0;
    let unread = 0;
    for (let step = 0; step < 400; step++) {
      const stream = random(3) === 0 ? "stderr" : "stdout";
      const ends = random(3) > 0;
      const piece = random(20) === 0 ? `${serial++}${"z".repeat(random(100_000))}` : `${serial++},`;
      await log.write(stream, piece, ends ? "F" : "P");
      const whole = (open[stream] ?? "") + piece;
      open[stream] = ends ? undefined : whole;
      const wasCut = Buffer.byteLength(whole) - piece.length > maxLineBytes;
      const isCut = !wasCut && Buffer.byteLength(whole) > maxLineBytes;
      const text = isCut ? whole.slice(0, maxLineBytes - Buffer.byteLength(cutMark)) + cutMark : whole;
      if (!wasCut && (ends || isCut)) {
        expected[stream].push(text);
        unread += 1;
      }
      if (random(15) === 0) await log.rotate();
      if (unread > 0 && random(5) === 0) {
        const part = await read(folder, cursor, 1 + random(unread));
        for (const row of part.rows) found[row.stream].push(row.log);
        unread -= part.rows.length;
        cursor = part.cursor;
      }
    }
    const rest = await read(folder, cursor);
    for (const row of rest.rows) found[row.stream].push(row.log);
    for (const stream of ["stdout", "stderr"] as const) {
      const last = open[stream];
      if (last !== undefined && last.length <= maxLineBytes) expected[stream].push(last);
      expect(found[stream]).toEqual(expected[stream]);
    }
    await remove();
  });
});

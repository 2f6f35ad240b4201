import { expect, test } from "vitest";
import { maxLineBytes } from "../domain/rows.ts";
import { createTimedLines } from "./log-lines.ts";

const at = (second: number, ns: number) => `2026-01-02T03:04:0${second}.${String(ns).padStart(9, "0")}Z`;
/** Two of one time, and two that the other stream wrote a little earlier. */
const log = [
  `${at(1, 5)} one`,
  `${at(1, 5)} two`,
  `${at(2, 7)} three`,
  `${at(1, 9)} four`,
  `${at(2, 6)} five`,
  `${at(3, 1)} `,
  `${at(3, 2)} six`,
];
const textsOf = (rows: readonly { log: string }[]) => rows.map(({ log: text }) => text);

/** What the API server gives from a whole second on. */
function from(since: Date | undefined): Buffer {
  const lines = log.filter((line) => since === undefined || line >= since.toISOString().slice(0, 19));
  return Buffer.from(`${lines.join("\n")}\n`);
}

test("a log is read on from any line, with none lost and none twice, in whatever pieces it comes", () => {
  const all = textsOf(createTimedLines("").take(from(undefined)));
  expect(all).toEqual(["one", "two", "three", "four", "five", "", "six"]);
  for (let count = 0; count <= log.length; count++) {
    const before = createTimedLines("0");
    const rows = before.take(
      Buffer.from(
        log
          .slice(0, count)
          .map((line) => `${line}\n`)
          .join(""),
      ),
    );
    for (const size of [1, 7, 1_000]) {
      const after = createTimedLines(before.cursor());
      const bytes = from(after.since);
      for (let start = 0; start < bytes.length; start += size) {
        const more = after.take(bytes.subarray(start, start + size));
        if (size === 1_000) expect([...textsOf(rows), ...textsOf(more)], `after ${count}`).toEqual(all);
      }
      expect(after.cursor()).toBe(createCursorOfAll());
    }
  }
});

function createCursorOfAll(): string {
  const lines = createTimedLines("");
  lines.take(from(undefined));
  return lines.cursor();
}

test("a log that no longer has its last line goes on with what is later", () => {
  const lines = createTimedLines("1767323042000000001/3");
  expect(lines.since).toEqual(new Date("2026-01-02T03:04:01Z"));
  log.splice(0, 2);
  expect(textsOf(lines.take(from(lines.since)))).toEqual(["three", "four", "five", "", "six"]);
});

test("a line that is too long is cut, however long it is, and only the end of a log may lack a line end", () => {
  const lines = createTimedLines("");
  expect(lines.take(Buffer.from(`${at(1, 1)} `))).toEqual([]);
  for (let i = 0; i < 100; i++) expect(lines.take(Buffer.alloc(maxLineBytes, "x"))).toEqual([]);
  const [cut] = lines.take(Buffer.from(`\n${at(2, 1)} last`));
  expect(Buffer.byteLength(cut?.log ?? "")).toBe(maxLineBytes);
  expect(cut?.log).toMatch(/x …\[cut\]$/);
  expect(textsOf(lines.finish())).toEqual(["last"]);
  expect(lines.finish()).toEqual([]);
});

test("a kubelet's own words are no line, and a cursor of another source is refused", () => {
  const lines = createTimedLines("");
  expect(lines.take(Buffer.from("unable to retrieve container logs for containerd://abc\n\n \n"))).toEqual([]);
  expect(lines.cursor()).toBe("0");
  expect(() => createTimedLines("12/34-stderr 2 12/567")).toThrow("not a position");
});

/** A text as a textarea has it, whose lines all end with a line feed. */
export function toLineFeeds(text: string): string {
  return text.replace(/\r\n?/g, "\n");
}

const linesOf = (text: string) => text.match(/[^\r\n]*(?:\r\n?|\n)|[^\r\n]+$/g) ?? [];

/**
 * An edited text with the line ends of the one that was edited. What stands before the first change and after the last
 * keeps its own, and what is between has the first line feed's, with its carriage return if it has one.
 */
export function keepLineEnds(text: string, edited: string): string {
  const [before, after] = [linesOf(text), linesOf(edited)];
  const most = Math.min(before.length, after.length);
  const isSame = (i: number, j: number) => toLineFeeds(before.at(i) ?? "") === after.at(j);
  let start = 0;
  while (start < most && isSame(start, start)) start += 1;
  let end = 0;
  while (end < most - start && isSame(-1 - end, -1 - end)) end += 1;
  const lineEnd = (/\r?\n/.exec(text) ?? /\r/.exec(text))?.[0] ?? "\n";
  return [
    ...before.slice(0, start),
    ...after.slice(start, after.length - end).map((line) => line.replace("\n", lineEnd)),
    ...before.slice(before.length - end),
  ].join("");
}

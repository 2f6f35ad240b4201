import { UsageError } from "./args.ts";

export type Format = "table" | "json" | "name";

export function toFormat(text: string | undefined): Format {
  if (text === undefined) return "table";
  if (text === "table" || text === "json" || text === "name") return text;
  throw new UsageError(`-o ${text}: table, json or name is expected`);
}

/** Writes, and waits until a slow reader has taken it. That there is none any more is for `main.ts`. */
export function write(data: string | Uint8Array, to: NodeJS.WriteStream = process.stdout): Promise<void> {
  return new Promise((resolve) => to.write(data, () => resolve()));
}

/** Tells people how it goes, in a line on stderr. */
export function say(text: string): void {
  process.stderr.write(`${plain(text)}\n`);
}

export interface Column<T> {
  title: string;
  of(item: T): string | number | boolean | null | undefined;
}

/** Prints items as a table, as JSON, or by their names alone. */
export async function printList<T>(
  items: readonly T[],
  format: Format,
  o: { columns: readonly Column<T>[]; name(item: T): string; json?(item: T): unknown },
): Promise<void> {
  if (format === "json")
    return write(
      `${JSON.stringify(
        items.map((item) => o.json?.(item) ?? item),
        null,
        2,
      )}\n`,
    );
  if (format === "name") return write(items.map((item) => `${o.name(item)}\n`).join(""));
  const rows = [
    o.columns.map(({ title }) => title.toUpperCase()),
    ...items.map((item) => o.columns.map(({ of }) => plain(of(item)))),
  ];
  const widths = o.columns.map((_, i) => Math.max(...rows.map((row) => row[i]?.length ?? 0)));
  const lines = rows.map((row) =>
    row
      .map((cell, i) => cell.padEnd(widths[i] ?? 0))
      .join("   ")
      .trimEnd(),
  );
  return write(`${lines.join("\n")}\n`);
}

/** Prints one record. */
export async function printOne<T extends object>(
  item: T,
  format: Format,
  o: { columns: readonly Column<T>[]; name(item: T): string },
): Promise<void> {
  if (format === "json") return write(`${JSON.stringify(item, null, 2)}\n`);
  if (format === "name") return write(`${o.name(item)}\n`);
  const width = Math.max(...o.columns.map(({ title }) => title.length));
  return write(o.columns.map(({ title, of }) => `${`${title}:`.padEnd(width + 2)}${plain(of(item))}\n`).join(""));
}

/** One line, such as a cell; what comes from others can't move the cursor. */
function plain(value: string | number | boolean | null | undefined): string {
  // biome-ignore lint/suspicious/noControlCharactersInRegex: these are what is taken out
  return String(value ?? "-").replace(/[\u0000-\u001f\u007f-\u009f]/g, " ");
}

/** How long ago, for people. */
export function ago(moment: string | null): string {
  return moment === null ? "-" : `${span((Date.now() - Date.parse(moment)) / 1000)} ago`;
}

/** How long from now. */
export function ahead(moment: string | null): string {
  if (moment === null) return "-";
  const seconds = (Date.parse(moment) - Date.now()) / 1000;
  return seconds > 0 ? `in ${span(seconds)}` : ago(moment);
}

function span(seconds: number): string {
  if (seconds < 100) return `${Math.max(0, Math.round(seconds))}s`;
  if (seconds < 6000) return `${Math.round(seconds / 60)}m`;
  return seconds < 172_800 ? `${Math.round(seconds / 3600)}h` : `${Math.round(seconds / 86_400)}d`;
}

export function bytes(count: number): string {
  const names = ["B", "KiB", "MiB", "GiB"];
  const power = Math.min(3, Math.floor(Math.log2(Math.max(1, count)) / 10));
  const value = count / 1024 ** power;
  return `${power === 0 ? value : value.toFixed(1)} ${names[power]}`;
}

/** A line on a terminal's stderr that is written over; nothing in a pipe. */
export function createStatus(): { show(text: string): void; clear(): void } {
  const { stderr } = process;
  if (!stderr.isTTY || process.env.NO_COLOR) return { show: () => {}, clear: () => {} };
  let isShown = false;
  return {
    show(text) {
      isShown = true;
      stderr.write(`\r\u001b[K${text.slice(0, (stderr.columns ?? 80) - 1)}`);
    },
    clear() {
      // What a command itself has printed on the line stays.
      if (isShown) stderr.write("\r\u001b[K");
      isShown = false;
    },
  };
}

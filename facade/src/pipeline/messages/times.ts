import type { Timestamp } from "@bufbuild/protobuf/wkt";

// Date, time and an optional offset; UTC without one. A space before the offset is a `+` that was not escaped in a
// query string.
const isoDateTime =
  /^(\d{4})-(\d\d)-(\d\d)[Tt ](\d\d):(\d\d)(?::(\d\d)(?:[.,](\d{1,9}))?)?(?:([Zz])|([+ -])(\d\d)(?::?(\d\d))?)?$/;

/** An ISO 8601 date and time in microseconds since 1970; undefined for anything else, including a date alone. */
export function parseMoment(text: string): bigint | undefined {
  const match = isoDateTime.exec(text);
  if (!match) return undefined;
  const [year, month, day, hour, minute, second] = match.slice(1, 7).map((part) => Number(part ?? 0));
  if (year === undefined || month === undefined || day === undefined) return undefined;
  if (hour === undefined || minute === undefined || second === undefined) return undefined;
  if (year < 1 || hour > 23 || minute > 59 || second > 59) return undefined;
  const date = new Date(0);
  // Unlike Date.UTC this does not move years below 100 to the 20th century.
  date.setUTCFullYear(year, month - 1, day);
  if (date.getUTCMonth() !== month - 1 || date.getUTCDate() !== day) return undefined;
  date.setUTCHours(hour, minute, second);
  const offsetHours = Number(match[10] ?? 0);
  const offsetMinutes = Number(match[11] ?? 0);
  if (offsetHours > 23 || offsetMinutes > 59) return undefined;
  const offsetMs = (offsetHours * 60 + offsetMinutes) * 60_000 * (match[9] === "-" ? -1 : 1);
  const ms = date.getTime() - offsetMs;
  // The offset may lead out of the years that google.protobuf.Timestamp can hold.
  if (new Date(ms).getUTCFullYear() < 1 || new Date(ms).getUTCFullYear() > 9999) return undefined;
  return BigInt(ms) * 1000n + BigInt((match[7] ?? "").padEnd(6, "0").slice(0, 6));
}

/** A google.protobuf.Timestamp of microseconds since 1970. */
export function toTimestamp(micros: bigint): { seconds: bigint; nanos: number } {
  const remainder = ((micros % 1_000_000n) + 1_000_000n) % 1_000_000n;
  return { seconds: (micros - remainder) / 1_000_000n, nanos: Number(remainder) * 1000 };
}

/** ISO 8601 in UTC with milliseconds. */
export function toIsoMillis({ seconds, nanos }: Timestamp): string {
  return `${toIsoSecond(Number(seconds))}.${pad(Math.floor(nanos / 1_000_000), 3)}Z`;
}

/** ISO 8601 in UTC with microseconds. */
export function toIsoMicros({ seconds, nanos }: Timestamp): string {
  return `${toIsoSecond(Number(seconds))}.${pad(Math.floor(nanos / 1000), 6)}Z`;
}

const secondsPerDay = 86_400;
let lastDay = 0;
let lastDate = "1970-01-01";

/**
 * ISO 8601 without a fraction and the zone. A page of log lines has thousands of times of one day, so the date is only
 * computed when it changes.
 */
function toIsoSecond(seconds: number): string {
  const day = Math.floor(seconds / secondsPerDay);
  if (day !== lastDay) {
    lastDate = new Date(day * secondsPerDay * 1000).toISOString().slice(0, -"T00:00:00.000Z".length);
    lastDay = day;
  }
  const remainder = seconds - day * secondsPerDay;
  const minutes = Math.floor(remainder / 60);
  return `${lastDate}T${pad(Math.floor(minutes / 60), 2)}:${pad(minutes % 60, 2)}:${pad(remainder % 60, 2)}`;
}

function pad(number: number, digits: number): string {
  return String(number).padStart(digits, "0");
}

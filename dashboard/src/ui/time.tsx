import { useEffect, useState } from "react";

const thisYear: Intl.DateTimeFormatOptions = {
  day: "numeric",
  month: "short",
  hour: "2-digit",
  minute: "2-digit",
  hourCycle: "h23",
};
const short = new Intl.DateTimeFormat(undefined, thisYear);
const withYear = new Intl.DateTimeFormat(undefined, { ...thisYear, year: "numeric" });
const exact = new Intl.DateTimeFormat(undefined, {
  dateStyle: "medium",
  timeStyle: "long",
});

/** A moment by the local clock. Its exact form is there for whoever points at it, and as text for `full`. */
export function Time({ at, full = false }: { at: string | null | undefined; full?: boolean }) {
  if (!at) return <span className="muted">never</span>;
  const date = new Date(at);
  const isThisYear = date.getFullYear() === new Date().getFullYear();
  return (
    <time dateTime={at} title={`${exact.format(date)} (${at})`}>
      {full ? exact.format(date) : (isThisYear ? short : withYear).format(date)}
    </time>
  );
}

/** How far away a moment is, counted on while it is shown. */
export function Distance({ at }: { at: string | null | undefined }) {
  const now = useNow(at ? 5_000 : undefined);
  if (!at) return <span className="muted">–</span>;
  const seconds = Math.round((Date.parse(at) - now) / 1000);
  const text = spell(Math.abs(seconds));
  return (
    <time dateTime={at} title={`${exact.format(new Date(at))} (${at})`}>
      {seconds > 0 ? `in ${text}` : `${text} ago`}
    </time>
  );
}

/** "1 h 20 min" for 4,800 seconds. */
export function spell(seconds: number): string {
  if (seconds < 60) return `${seconds} s`;
  const minutes = Math.floor(seconds / 60);
  if (minutes < 60) return `${minutes} min`;
  const hours = Math.floor(minutes / 60);
  if (hours < 48) return minutes % 60 === 0 ? `${hours} h` : `${hours} h ${minutes % 60} min`;
  return `${Math.floor(hours / 24)} days`;
}

/** The time of day, again every so many milliseconds. */
export function useNow(everyMs: number | undefined): number {
  const [now, setNow] = useState(Date.now);
  useEffect(() => {
    if (everyMs === undefined) return;
    const timer = setInterval(() => setNow(Date.now()), everyMs);
    return () => clearInterval(timer);
  }, [everyMs]);
  return now;
}

const units = ["B", "KiB", "MiB", "GiB", "TiB"];

/** "1.5 MiB" for 1,572,864 bytes. */
export function bytes(count: number): string {
  let value = count;
  let unit = 0;
  while (value >= 1024 && unit < units.length - 1) {
    value /= 1024;
    unit++;
  }
  return `${unit === 0 || value >= 100 ? Math.round(value) : value.toFixed(1)} ${units[unit]}`;
}

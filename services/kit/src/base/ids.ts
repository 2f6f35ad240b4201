import { randomUUID } from "node:crypto";

let lastMs = 0;
let counter = 0;

/**
 * Creates a UUIDv7 (RFC 9562). Ids sort by time, and those of one process grow strictly, even within a millisecond or
 * when the clock is set back. `now` is in epoch milliseconds.
 */
export function newId(now: number = Date.now()): string {
  // Node reads the bits of random UUIDs in bulk, which is cheaper than asking for a few bytes at a time.
  const random = randomUUID();
  if (now > lastMs) {
    lastMs = now;
    // rand_a as a counter (RFC 9562, 6.2 method 1), seeded in its lower half, so that it can grow.
    counter = Number.parseInt(random.slice(0, 3), 16) & 0x7ff;
  } else {
    counter += 1;
    if (counter > 0xfff) {
      lastMs += 1;
      counter = 0;
    }
  }
  const time = lastMs.toString(16).padStart(12, "0");
  // The last two groups, whose variant bits are the same in every version.
  return `${time.slice(0, 8)}-${time.slice(8)}-7${counter.toString(16).padStart(3, "0")}-${random.slice(19)}`;
}

const uuid = /^[0-9a-f]{8}-[0-9a-f]{4}-[1-8][0-9a-f]{3}-[89ab][0-9a-f]{3}-[0-9a-f]{12}$/;

/** True for a UUID as the platform writes it: lower case, with dashes. */
export function isUuid(text: string): boolean {
  return uuid.test(text);
}

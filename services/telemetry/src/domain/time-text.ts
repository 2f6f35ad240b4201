/** Parses RFC 3339 times to the nanosecond. It remembers the last second, since most lines are of the same one. */
export function createTimeParser(): (text: string) => bigint {
  let knownSecond = "";
  let knownNs = 0n;
  return (text) => {
    const second = text.slice(0, 19);
    const [, fraction = "", zone = "Z"] = /^(?:\.(\d{1,9}))?(Z|[+-]\d\d:\d\d)$/.exec(text.slice(19)) ?? [];
    const key = second + zone;
    if (key !== knownSecond) {
      const ms = Date.parse(key);
      if (Number.isNaN(ms)) throw new Error(`not a time of the engine: ${text}`);
      knownSecond = key;
      knownNs = BigInt(ms) * 1_000_000n;
    }
    return knownNs + BigInt(fraction.padEnd(9, "0"));
  };
}

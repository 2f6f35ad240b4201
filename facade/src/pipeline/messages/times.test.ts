import fc from "fast-check";
import { describe, expect, test } from "vitest";
import { parseMoment, toIsoMicros, toIsoMillis, toTimestamp } from "./times.ts";

const timestamp = (micros: bigint) => ({ $typeName: "google.protobuf.Timestamp" as const, ...toTimestamp(micros) });

describe("parseMoment", () => {
  test.each([
    ["2026-01-31T12:00:00Z", "2026-01-31T12:00:00.000000Z"],
    ["2026-01-31T12:00:00", "2026-01-31T12:00:00.000000Z"],
    ["2026-01-31t12:00z", "2026-01-31T12:00:00.000000Z"],
    ["2026-01-31 12:00:00.5", "2026-01-31T12:00:00.500000Z"],
    ["2026-01-31T12:00:00.123456789+02:00", "2026-01-31T10:00:00.123456Z"],
    // An unencoded plus sign of a query string.
    ["2026-01-31T12:00:00 02:00", "2026-01-31T10:00:00.000000Z"],
    ["2026-01-31T12:00:00-0530", "2026-01-31T17:30:00.000000Z"],
    ["1969-12-31T23:59:59.999999Z", "1969-12-31T23:59:59.999999Z"],
    ["0001-01-01T00:00:00Z", "0001-01-01T00:00:00.000000Z"],
    ["2024-02-29T00:00:00Z", "2024-02-29T00:00:00.000000Z"],
  ])("reads %s", (text, expected) => {
    const micros = parseMoment(text);
    expect(micros === undefined ? undefined : toIsoMicros(timestamp(micros))).toBe(expected);
  });

  test.each([
    "",
    "now",
    "2026-01-31",
    "2026-01-31T",
    "2026-01-31T12",
    "2026-02-29T00:00:00Z",
    "2026-13-01T00:00:00Z",
    "2026-01-31T24:00:00Z",
    "2026-01-31T12:60:00Z",
    "2026-01-31T12:00:00+25:00",
    "0001-01-01T00:00:00+01:00",
    "0000-01-01T00:00:00Z",
    "9999-12-31T23:59:59-01:00",
    "1780000000",
  ])("refuses %j", (text) => {
    expect(parseMoment(text)).toBeUndefined();
  });
});

test("answers milliseconds by cutting", () => {
  expect(toIsoMillis(timestamp(1_780_000_000_123_999n))).toBe("2026-05-28T20:26:40.123Z");
});

test("times of any day are written as Date writes them", () => {
  fc.assert(
    fc.property(fc.integer({ min: new Date("0001-01-01T00:00:00Z").getTime(), max: Date.UTC(9999, 11, 31) }), (ms) => {
      expect(toIsoMillis(timestamp(BigInt(ms) * 1000n))).toBe(new Date(ms).toISOString());
    }),
  );
});

import { addMs, hourMs } from "@sandgate/kit/base/time";
import { expect, test } from "vitest";
import { decideOtpAttempt, refusedUntil } from "./otp-attempts.ts";

const at = (ms: number) => new Date(ms);
const factor = { id: "factor", sealed: new Uint8Array([1]) };

test("an attempt without an enabled second factor changes nothing", () => {
  expect(decideOtpAttempt(undefined, at(0))).toEqual({ attempt: { outcome: "none" } });
});

test("attempts are counted, and refused for a while from the fifth on", () => {
  const begin = (attempts: number) => decideOtpAttempt({ factor, attempts, refusedUntil: undefined }, at(0));
  const attempt = { outcome: "counted", factor };
  expect(begin(0)).toEqual({ attempt, change: { attempts: 1, refusedUntil: undefined } });
  expect(begin(4)).toEqual({ attempt, change: { attempts: 5, refusedUntil: at(30_000) } });
});

test("an attempt in the pause is refused and not counted", () => {
  const enabled = { factor, attempts: 5, refusedUntil: at(30_000) };
  expect(decideOtpAttempt(enabled, at(29_999))).toEqual({ attempt: { outcome: "refused", until: at(30_000) } });
  expect(decideOtpAttempt(enabled, at(30_000)).change).toEqual({ attempts: 6, refusedUntil: at(90_000) });
});

test("the pause after wrong codes doubles up to an hour", () => {
  const now = at(0);
  const pauses = [1, 4, 5, 6, 7, 11, 12, 1000].map((attempts) => refusedUntil(attempts, now));
  expect(pauses).toEqual([
    undefined,
    undefined,
    ...[30, 60, 120, 1920].map((seconds) => at(seconds * 1000)),
    addMs(now, hourMs),
    addMs(now, hourMs),
  ]);
});

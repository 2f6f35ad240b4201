import { Secret, URI } from "otpauth";
import { expect, test } from "vitest";
import { canonicalRecoveryCode, newOtpSecret, newRecoveryCodes, presentOtpSecret, stepOf } from "./otp.ts";

const at = (seconds: number) => new Date(seconds * 1000);

test("codes are those of RFC 6238, appendix B, in its last six digits", () => {
  const secret = new Uint8Array(Buffer.from("12345678901234567890"));
  for (const [seconds, otp] of [
    [59, "287082"],
    [1111111109, "081804"],
    [1111111111, "050471"],
    [1234567890, "005924"],
    [2000000000, "279037"],
    [20000000000, "353130"],
  ] as const) {
    expect(stepOf(secret, otp, at(seconds))).toBe(Math.floor(seconds / 30));
  }
});

test("a code counts in its step and in the one on either side", () => {
  const secret = new Uint8Array(Buffer.from("12345678901234567890"));
  // Of the step that begins at 1111111110.
  const otp = "050 471";
  const step = 37037037;
  const within = [1111111110 - 30, 1111111110, 1111111110 + 59];
  expect(within.map((seconds) => stepOf(secret, otp, at(seconds)))).toEqual([step, step, step]);
  expect([1111111110 - 31, 1111111110 + 60].map((seconds) => stepOf(secret, otp, at(seconds)))).toEqual([
    undefined,
    undefined,
  ]);
  for (const bad of ["", "50471", "0504711", "abcdef", "-50471"]) {
    expect(stepOf(secret, bad, at(1111111111))).toBeUndefined();
  }
});

test("an app gets the secret by its address", () => {
  const secret = newOtpSecret();
  expect(secret).toHaveLength(20);
  const { secret: text, uri } = presentOtpSecret(secret, "Ann O'Hara@example.com");
  expect(new Secret({ buffer: new Uint8Array(secret).buffer }).base32).toBe(text);
  expect(URI.parse(uri)).toMatchObject({
    issuer: "Sandgate",
    label: "Ann O'Hara@example.com",
    algorithm: "SHA1",
    digits: 6,
    period: 30,
    secret: { base32: text },
  });
});

test("recovery codes are ten, each another, and are read however they are typed", () => {
  const codes = newRecoveryCodes();
  expect(new Set(codes).size).toBe(10);
  for (const code of codes) {
    expect(code).toMatch(/^([0-9a-hjkmnp-tv-z]{4}-){5}[0-9a-hjkmnp-tv-z]{4}$/);
    const plain = code.replaceAll("-", "");
    expect(canonicalRecoveryCode(code)).toBe(plain);
    expect(canonicalRecoveryCode(` ${code.toUpperCase().replaceAll("-", " ")} `)).toBe(plain);
  }
  for (const bad of ["", "123456", "0123-4567-89ab-cdef-ghjk-mnp", "0123-4567-89ab-cdef-ghjk-mnpi"]) {
    expect(canonicalRecoveryCode(bad)).toBeUndefined();
  }
});
